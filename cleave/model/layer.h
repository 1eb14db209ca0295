#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cleave/ids.h"

namespace cleave {

using Values = std::vector<at::Tensor>;

// Tensors by their full names ("hidden.weight"), in the order of the layers.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Where a forward pass stands in a run. Random numbers in a layer depend on
// this and on the layer's name, on nothing else: not on the cut, not on the
// order in which devices work.
struct Moment {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  Microbatch microbatch;
};

// A built layer: a module, and how to call it on tensors.
struct Layer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Values(const Values&)> forward;
  bool joins = false;  // its result is what it is given, side by side
};

// Makes a fresh layer. Its weights are drawn where it is called, so the caller
// decides the random stream.
using Recipe = std::function<Layer()>;

inline constexpr size_t kMaxLayerInputs = 8;

// Throws Error: the layer was given `given` tensors and takes another number.
[[noreturn]] void fail_on_input_count(size_t given);

namespace layer_detail {

// The type behind a module holder (torch::nn::Linear -> LinearImpl).
template <class Module>
struct ImplOf {
  using type = Module;
};
template <class Module>
requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, Module>
struct ImplOf<Module> {
  using type = typename Module::ContainedType;
};

template <size_t>
using TensorArgument = const at::Tensor&;

template <class Impl, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires(Impl & impl, TensorArgument<I>... inputs) {
    impl.forward(inputs...);
  };
}

template <class Impl, size_t count>
constexpr bool kTakes = takes<Impl>(std::make_index_sequence<count>());

inline Values to_values(at::Tensor output) {
  return {std::move(output)};
}
inline Values to_values(Values outputs) {
  return outputs;
}
template <class... Tensors>
Values to_values(const std::tuple<Tensors...>& outputs) {
  return std::apply([](const auto&... each) { return Values{each...}; },
                    outputs);
}

template <class Impl, size_t... I>
Values call(Impl& impl, const Values& inputs, std::index_sequence<I...>) {
  return to_values(impl.forward(inputs[I]...));
}

// Calls forward with as many tensors as were given, where it takes that many.
template <class Impl, size_t count = 1>
Values call(Impl& impl, const Values& inputs) {
  if constexpr (kTakes<Impl, count>) {
    if (inputs.size() == count) {
      return call(impl, inputs, std::make_index_sequence<count>());
    }
  }
  if constexpr (count < kMaxLayerInputs) {
    return call<Impl, count + 1>(impl, inputs);
  }
  fail_on_input_count(inputs.size());
}

template <class Output>
inline constexpr int kOutputs = 1;
template <class... Tensors>
inline constexpr int kOutputs<std::tuple<Tensors...>> = sizeof...(Tensors);

template <class Impl, size_t... I>
constexpr int outputs(std::index_sequence<I...>) {
  using Output = decltype(std::declval<Impl&>().forward(
      std::declval<TensorArgument<I>>()...));
  return kOutputs<std::remove_cvref_t<Output>>;
}

// How many tensors the module's forward makes, by its type; a vector counts
// as one until LayerSpec::outputs() says more.
template <class Impl, size_t count = 1>
constexpr int output_count() {
  static_assert(count <= kMaxLayerInputs,
                "a layer's forward takes tensors (1 to 8) and returns a "
                "tensor, a tuple of tensors or a std::vector of tensors");
  if constexpr (count > kMaxLayerInputs) {
    return 0;
  } else if constexpr (kTakes<Impl, count>) {
    return outputs<Impl>(std::make_index_sequence<count>());
  } else {
    return output_count<Impl, count + 1>();
  }
}

}  // namespace layer_detail

// Any torch::nn module whose forward takes and returns tensors.
template <class Impl>
Layer make_layer(std::shared_ptr<Impl> module) {
  Impl& impl = *module;
  return {std::move(module), [&impl](const Values& inputs) {
            return layer_detail::call(impl, inputs);
          }};
}

// A copy of a module that libtorch itself holds without its type.
Layer make_layer(const torch::nn::AnyModule& module);

}  // namespace cleave
