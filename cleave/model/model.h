#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "cleave/model/layer.h"

namespace torch::nn {
class Sequential;
}

namespace cleave {

class Model;
class Network;
class Wiring;

// A layer that is not built yet: a name and a recipe, what it reads, and which
// of its parameters are another layer's.
class LayerSpec {
 public:
  // Names what the layer takes, in the order of its arguments: "input", an
  // earlier layer, or "name:1" for one of several outputs. Unless called, the
  // layer takes all that the layer before it makes.
  LayerSpec& reads(std::vector<std::string> values);

  // Declares how many tensors the layer makes, where its type does not say
  // (forward returns a vector).
  LayerSpec& outputs(int count);

  // Makes `parameter` of this layer the same as `owner`, the full name of a
  // parameter of an earlier layer: shares("weight", "embedding.weight").
  LayerSpec& shares(std::string parameter, std::string owner);

  const std::string& name() const { return name_; }

 private:
  friend class Model;
  friend Model fuse(const Model& model);

  struct Share {
    std::string parameter;
    std::string owner;
  };

  std::string name_;
  int outputs_ = 1;
  std::vector<std::string> reads_;  // empty: all of the layer before it
  Recipe recipe_;
  std::type_index module_ = typeid(void);  // void: only the recipe knows
  std::vector<Share> shares_;
};

// One use of a parameter.
struct ParameterUse {
  int layer = 0;
  std::string parameter;  // its name inside the layer
};

// A parameter that several layers use. The first use is the owner's; the
// others follow in the order of their layers.
struct Tie {
  std::string name;  // full name: "embedding.weight"
  std::vector<ParameterUse> uses;
};

// A network as named layers, none of which is built until a device needs it.
// Weights depend on the seed and the layer's name alone, so that every cut
// starts from the same bits.
class Model {
 public:
  explicit Model(std::string name, std::uint64_t seed = 0);

  // The children of an existing network become the layers "0", "1", …; their
  // weights are kept.
  static Model from(const torch::nn::Sequential& network,
                    std::string name = "sequential");

  // Adds a layer made of any torch::nn module: add<torch::nn::Linear>("out",
  // 512, 10). The arguments are kept by value until the layer is built.
  template <class Module, class... Arguments>
  LayerSpec& add(const std::string& layer, Arguments... arguments) {
    using Impl = typename layer_detail::ImplOf<Module>::type;
    Recipe recipe = [arguments...] {
      return make_layer(std::make_shared<Impl>(arguments...));
    };
    return add_known(layer, std::move(recipe), typeid(Impl))
        .outputs(layer_detail::output_count<Impl>());
  }

  // Adds a layer made by a recipe. Throws Error on a name that is taken, that
  // is a dotted prefix of another's, or that cannot name a tensor in a file.
  LayerSpec& add(const std::string& layer, Recipe recipe);

  const std::string& name() const { return name_; }
  std::uint64_t seed() const { return seed_; }
  int size() const { return static_cast<int>(layers_.size()); }
  std::vector<std::string> layer_names() const;
  Wiring wiring() const;
  std::vector<Tie> ties() const;

  // The layer, freshly built with its own random stream.
  Layer build_layer(int index) const;

  // The whole network on one device, as an ordinary torch::nn module to train
  // with a plain loop; or the layers from `first` up to `last` of it.
  std::shared_ptr<Network> build() const;
  std::shared_ptr<Network> build(int first, int last) const;

 private:
  friend Model fuse(const Model& model);

  LayerSpec& add_known(const std::string& layer,
                       Recipe recipe,
                       std::type_index module);

  std::string name_;
  std::uint64_t seed_;
  std::deque<LayerSpec> layers_;  // a deque: add() returns references
};

// Joins every linear layer with the ReLU behind it, where no other layer reads
// what lies between, into one layer of the linear layer's name. Parameters,
// their names and all bits stay the same; memory is passed over less often.
// Layers made by a recipe of the user's stay as they are.
Model fuse(const Model& model);

}  // namespace cleave
