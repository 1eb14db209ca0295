#include "cleave/model/wiring.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr int kInput = -1;

// The layer that `name` names, or -2.
int layer_named(const std::string& name,
                const std::vector<LayerReads>& layers) {
  if (name == "input") {
    return kInput;
  }
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    if (layers[layer].name == name) {
      return layer;
    }
  }
  return -2;
}

// The number behind the colon of "name:1"; -1 where there is none.
int output_of(std::string& read) {
  const size_t colon = read.rfind(':');
  int output = -1;
  if (colon != std::string::npos) {
    const char* end = read.data() + read.size();
    if (std::from_chars(read.data() + colon + 1, end, output).ptr == end) {
      read.resize(colon);
    }
  }
  return output;
}

}  // namespace

Wiring::Wiring(const std::vector<LayerReads>& layers) {
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    outputs_.push_back(layers[layer].outputs);
    reads_.emplace_back();
    std::vector<std::string> names = layers[layer].reads;
    if (names.empty()) {
      names = {layer == 0 ? "input" : layers[layer - 1].name};
    }
    for (const std::string& name : names) {
      for (const Value& value : resolve(name, layer, layers)) {
        reads_[layer].push_back(value);
      }
    }
  }
}

std::vector<Value> Wiring::resolve(
    const std::string& read,
    int reader,
    const std::vector<LayerReads>& layers) const {
  std::string name = read;
  const int output = output_of(name);
  const int layer = layer_named(name, layers);
  const std::string who = "layer '" + layers[reader].name + "' reads '" + read;
  if (layer == -2) {
    fail(who + "', which no layer is called",
         "Name an earlier layer, or input.");
  }
  if (layer >= reader) {
    fail(who + "', which comes after it", "Name an earlier layer, or input.");
  }
  const int count = layer == kInput ? 1 : outputs_[layer];
  if (output >= count) {
    fail(who + "', but '" + name + "' makes " + std::to_string(count) +
             " tensors",
         "Outputs count from 0; declare more with outputs().");
  }
  if (output >= 0) {
    return {{layer, output}};
  }
  std::vector<Value> all;
  all.reserve(count);
  for (int index = 0; index < count; ++index) {
    all.push_back({layer, index});
  }
  return all;
}

std::vector<Value> Wiring::crossing(int cut) const {
  const int layers = static_cast<int>(reads_.size());
  std::set<Value> values;
  if (cut == layers) {
    for (int output = 0; output < outputs_.back(); ++output) {
      values.insert({layers - 1, output});
    }
  }
  for (int reader = cut; reader < layers; ++reader) {
    for (const Value& value : reads_[reader]) {
      if (value.layer < cut) {
        values.insert(value);
      }
    }
  }
  return {values.begin(), values.end()};
}

bool Wiring::is_dead(const Value& value, int cut) const {
  const int layers = static_cast<int>(reads_.size());
  if (value.layer == layers - 1) {
    return false;
  }
  for (int reader = cut; reader < layers; ++reader) {
    if (std::find(reads_[reader].begin(), reads_[reader].end(), value) !=
        reads_[reader].end()) {
      return false;
    }
  }
  return true;
}

}  // namespace cleave
