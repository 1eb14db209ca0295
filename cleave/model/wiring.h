#pragma once

#include <compare>
#include <string>
#include <vector>

namespace cleave {

// Something one layer makes and later layers read: its `output`-th tensor.
// Layer -1 makes the network's input.
struct Value {
  int layer = -1;
  int output = 0;

  auto operator<=>(const Value&) const = default;
};

// Who reads what, as the user declared it.
struct LayerReads {
  std::string name;
  int outputs = 1;                 // how many tensors the layer makes
  std::vector<std::string> reads;  // empty: all the layer before it makes
};

// Who reads what in a chain of layers, and so which values have to cross a cut
// between any two of them. No tensors here.
class Wiring {
 public:
  // Every read is "input", a layer's name, or "name:1" for one of several
  // outputs, and names an earlier layer. Throws Error otherwise.
  explicit Wiring(const std::vector<LayerReads>& layers);

  // What the layer takes, in the order of its arguments.
  const std::vector<Value>& reads(int layer) const { return reads_[layer]; }

  int outputs(int layer) const { return outputs_[layer]; }

  // The values that layers before `cut` make and layers from `cut` on read, in
  // the order they are made. A cut behind the last layer is crossed by what
  // that layer makes: the network's result.
  std::vector<Value> crossing(int cut) const;

  // True when no layer from `cut` on reads the value and it is no result.
  bool is_dead(const Value& value, int cut) const;

 private:
  std::vector<Value> resolve(const std::string& read,
                             int reader,
                             const std::vector<LayerReads>& layers) const;

  std::vector<int> outputs_;               // per layer
  std::vector<std::vector<Value>> reads_;  // per layer
};

}  // namespace cleave
