#include "cleave/stage/edge_split.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "cleave/model/intercept/weight_queue.h"

namespace cleave {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

Edge accumulator_of(const at::Tensor& parameter) {
  return torch::autograd::impl::gradient_edge(parameter);
}

// All nodes below the roots, every node after those it leads to.
std::vector<Node*> nodes_below(const edge_list& roots) {
  std::vector<Node*> order;
  std::unordered_set<Node*> seen;
  struct Visit {
    Node* node;
    uint32_t next = 0;
  };
  std::vector<Visit> path;  // no recursion: graphs are deep
  const auto enter = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      path.push_back({node});
    }
  };
  for (const Edge& root : roots) {
    enter(root.function.get());
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next < visit.node->num_outputs()) {
        enter(visit.node->next_edge(visit.next++).function.get());
      } else {
        order.push_back(visit.node);
        path.pop_back();
      }
    }
  }
  return order;
}

}  // namespace

EdgeSplit::EdgeSplit(Graph graph) : graph_(std::move(graph)) {
  find_branches();
}

// What is known of the nodes while the graph is walked from its ends up.
struct EdgeSplit::Walk {
  std::set<const Node*> on_path;  // leads to something B wants
  // For nodes off the path: the parameters of Graph::later they lead to.
  std::map<const Node*, std::set<size_t>> leads_to;
  // Where branches begin, and to which parameters.
  std::map<Node*, std::set<size_t>> found;
};

EdgeSplit::Walk EdgeSplit::ends() const {
  Walk walk;
  for (const Edge& input : graph_.inputs) {
    walk.on_path.insert(input.function.get());
  }
  for (const at::Tensor& parameter : graph_.at_once) {
    walk.on_path.insert(accumulator_of(parameter).function.get());
  }
  for (size_t i = 0; i < graph_.later.size(); ++i) {
    walk.leads_to[accumulator_of(graph_.later[i]).function.get()] = {i};
  }
  return walk;
}

void EdgeSplit::visit(Node* node, bool is_root, Walk& walk) {
  std::set<size_t> below;
  for (const Edge& next : node->next_edges()) {
    if (walk.on_path.contains(next.function.get())) {
      walk.on_path.insert(node);
    } else if (const auto known = walk.leads_to.find(next.function.get());
               known != walk.leads_to.end()) {
      below.insert(known->second.begin(), known->second.end());
    }
  }
  if (below.empty()) {
    return;
  }
  const bool on_path = walk.on_path.contains(node);
  if (!on_path) {
    walk.leads_to[node].insert(below.begin(), below.end());
  }
  if (on_path || is_root) {
    walk.found[node] = below;
  }
}

void EdgeSplit::find_branches() {
  Walk walk = ends();
  std::set<const Node*> roots;
  for (const Edge& root : graph_.roots) {
    roots.insert(root.function.get());
  }
  for (Node* node : nodes_below(graph_.roots)) {
    visit(node, roots.contains(node), walk);
    if (!walk.leads_to.contains(node) && !walk.found.contains(node)) {
      for_inputs_.push_back(node);
    }
  }
  std::vector<int> places(graph_.later.size(), 0);
  for (const auto& [node, below] : walk.found) {
    for (const size_t parameter : below) {
      ++places[parameter];
    }
  }
  for (const auto& [node, below] : walk.found) {
    Branch branch{.node = node};
    for (const size_t parameter : below) {
      if (places[parameter] == 1) {
        branch.parameters.push_back(graph_.later[parameter]);
      }
    }
    if (!branch.parameters.empty()) {
      branches_.push_back(std::move(branch));
    }
  }
  for (size_t i = 0; i < graph_.later.size(); ++i) {
    if (places[i] != 1) {
      graph_.at_once.push_back(graph_.later[i]);
    }
  }
}

variable_list EdgeSplit::backward_inputs(const variable_list& seeds) {
  edge_list wanted = graph_.inputs;
  for (const at::Tensor& parameter : graph_.at_once) {
    wanted.push_back(accumulator_of(parameter));
  }
  for (const Branch& branch : branches_) {
    for (uint32_t i = 0; i < branch.node->num_inputs(); ++i) {
      wanted.emplace_back(branch.node->getptr(), i);
    }
  }
  variable_list found = torch::autograd::Engine::get_default_engine().execute(
      graph_.roots,
      seeds,
      /*keep_graph=*/true,
      /*create_graph=*/false,
      /*accumulate_grad=*/false,
      wanted);
  size_t next = graph_.inputs.size();
  for (const at::Tensor& parameter : graph_.at_once) {
    if (at::Tensor gradient = std::move(found[next++]); gradient.defined()) {
      accumulate_gradient(parameter, std::move(gradient));
    }
  }
  for (Branch& branch : branches_) {
    for (uint32_t i = 0; i < branch.node->num_inputs(); ++i) {
      branch.gradients.push_back(found[next++]);
    }
  }
  for (Node* node : for_inputs_) {
    node->release_variables();
  }
  return {found.begin(), found.begin() + std::ssize(graph_.inputs)};
}

void EdgeSplit::backward_weights() {
  for (Branch& branch : branches_) {
    edge_list roots;
    variable_list seeds;
    for (uint32_t i = 0; i < branch.gradients.size(); ++i) {
      if (branch.gradients[i].defined()) {
        roots.emplace_back(branch.node->getptr(), i);
        seeds.push_back(std::move(branch.gradients[i]));
      }
    }
    if (roots.empty()) {
      continue;
    }
    edge_list wanted;
    for (const at::Tensor& parameter : branch.parameters) {
      wanted.push_back(accumulator_of(parameter));
    }
    variable_list found = torch::autograd::Engine::get_default_engine().execute(
        roots, seeds, false, false, false, wanted);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].defined()) {
        accumulate_gradient(branch.parameters[i], std::move(found[i]));
      }
    }
  }
  branches_.clear();
  graph_ = {};
}

}  // namespace cleave
