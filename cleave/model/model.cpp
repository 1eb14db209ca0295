#include "cleave/model/model.h"

#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <set>

#include "cleave/error.h"
#include "cleave/model/intercept/random.h"
#include "cleave/model/network.h"
#include "cleave/model/wiring.h"

namespace cleave {
namespace {

void check_name(const std::string& name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != 0x7f && c != ':';
  });
  if (name.empty() || !printable || name == "input" || name.front() == '.' ||
      name.back() == '.' || name.find("..") != std::string::npos) {
    fail("a layer cannot be called '" + name + "'",
         "Use letters, digits, '_', '-' and single dots; input is taken.");
  }
}

// Full names are layer + "." + parameter, so "a" and "a.b" could collide.
void check_against(const std::string& name, const std::string& other) {
  if (name == other) {
    fail("two layers are called '" + name + "'",
         "Give every layer a name of its own.");
  }
  if (name.starts_with(other + ".") || other.starts_with(name + ".")) {
    fail("layer '" + name + "' and layer '" + other +
             "' would mix up their parameters' names",
         "Let neither name be the beginning of the other.");
  }
}

}  // namespace

LayerSpec& LayerSpec::reads(std::vector<std::string> values) {
  reads_ = std::move(values);
  return *this;
}

LayerSpec& LayerSpec::outputs(int count) {
  outputs_ = count;
  return *this;
}

LayerSpec& LayerSpec::shares(std::string parameter, std::string owner) {
  shares_.push_back({std::move(parameter), std::move(owner)});
  return *this;
}

Model::Model(std::string name, std::uint64_t seed)
    : name_(std::move(name)), seed_(seed) {}

Model Model::from(const torch::nn::Sequential& network, std::string name) {
  Model model(std::move(name));
  const auto children = network->named_children();
  std::set<const void*> seen;
  for (const auto& parameter : network->named_parameters()) {
    if (!seen.insert(parameter.value().unsafeGetTensorImpl()).second) {
      fail("the network has the parameter '" + parameter.key() + "' twice",
           "Add its layers one by one, and say what they share with shares().");
    }
  }
  size_t index = 0;
  for (const torch::nn::AnyModule& child : *network) {
    // Shared with the caller's network: AnyModule is a handle to a module.
    auto handle = std::make_shared<torch::nn::AnyModule>(child);
    const torch::nn::Module& module = *child.ptr();
    model.add_known(
        children[index++].key(),
        [handle] { return make_layer(*handle); },
        typeid(module));
  }
  return model;
}

LayerSpec& Model::add(const std::string& layer, Recipe recipe) {
  check_name(layer);
  for (const LayerSpec& other : layers_) {
    check_against(layer, other.name());
  }
  LayerSpec& spec = layers_.emplace_back();
  spec.name_ = layer;
  spec.recipe_ = std::move(recipe);
  return spec;
}

LayerSpec& Model::add_known(const std::string& layer,
                            Recipe recipe,
                            std::type_index module) {
  LayerSpec& spec = add(layer, std::move(recipe));
  spec.module_ = module;
  return spec;
}

std::vector<std::string> Model::layer_names() const {
  std::vector<std::string> names;
  for (const LayerSpec& layer : layers_) {
    names.push_back(layer.name());
  }
  return names;
}

Wiring Model::wiring() const {
  if (layers_.empty()) {
    fail("model '" + name_ + "' has no layers", "Add one with add().");
  }
  std::vector<LayerReads> reads;
  for (const LayerSpec& layer : layers_) {
    reads.push_back({layer.name_, layer.outputs_, layer.reads_});
  }
  return Wiring(reads);
}

std::vector<Tie> Model::ties() const {
  std::vector<Tie> ties;
  for (int user = 0; user < size(); ++user) {
    for (const LayerSpec::Share& share : layers_[user].shares_) {
      auto tie = std::find_if(ties.begin(), ties.end(), [&](const Tie& known) {
        return known.name == share.owner;
      });
      if (tie == ties.end()) {
        int owner = 0;
        while (owner < user &&
               !share.owner.starts_with(layers_[owner].name() + ".")) {
          ++owner;
        }
        if (owner == user) {
          fail("layer '" + layers_[user].name() + "' shares '" + share.owner +
                   "', which no earlier layer has",
               "Name it as LAYER.PARAMETER, of a layer before this one.");
        }
        const size_t dot = layers_[owner].name().size() + 1;
        ties.push_back({share.owner, {{owner, share.owner.substr(dot)}}});
        tie = ties.end() - 1;
      }
      tie->uses.push_back({user, share.parameter});
    }
  }
  return ties;
}

Layer Model::build_layer(int index) const {
  const LayerSpec& layer = layers_[index];
  const RandomStream stream(random_key(seed_, layer.name()));
  try {
    return layer.recipe_();
  } catch (const std::exception& error) {
    fail(
        "layer '" + layer.name() + "' could not be built: " + first_line(error),
        "");
  }
}

std::shared_ptr<Network> Model::build() const {
  return build(0, size());
}

std::shared_ptr<Network> Model::build(int first, int last) const {
  return std::make_shared<Network>(*this, first, last);
}

}  // namespace cleave
