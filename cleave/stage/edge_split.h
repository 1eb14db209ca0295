#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "cleave/model/layer.h"

namespace cleave {

// Splits the backward of operations that cannot queue their weight gradients
// themselves (weight_queue.h), by walking autograd's graph: B stops where the
// branches to the weights leave the paths to everything else and keeps the
// gradients found there; W continues from them. One for every microbatch.
class EdgeSplit {
 public:
  // What the graph of a microbatch begins and ends with.
  struct Graph {
    torch::autograd::edge_list roots;
    torch::autograd::edge_list inputs;  // whose gradients B gives
    Values at_once;                     // parameters whose gradients B adds up
    Values later;                       // those whose gradients W adds up
  };

  // Parameters of Graph::later to which the paths branch off at several places
  // get their gradients at once: their sums would change.
  explicit EdgeSplit(Graph graph);

  // B: the gradients of the inputs. Keeps of the graph what W needs.
  torch::autograd::variable_list backward_inputs(
      const torch::autograd::variable_list& seeds);

  // W. REQUIRES: backward_inputs() ran.
  void backward_weights();

 private:
  using Node = torch::autograd::Node;

  // Where the branches to some parameters begin.
  struct Branch {
    Node* node = nullptr;
    Values parameters;
    torch::autograd::variable_list gradients;  // that reached it, per input
  };

  struct Walk;

  Walk ends() const;
  static void visit(Node* node, bool is_root, Walk& walk);
  void find_branches();

  Graph graph_;
  std::vector<Branch> branches_;
  std::vector<Node*> for_inputs_;  // nodes that only B needs
};

}  // namespace cleave
