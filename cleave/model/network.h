#pragma once

#include <torch/nn/module.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cleave/model/layer.h"
#include "cleave/policies.h"
#include "cleave/units.h"

namespace cleave {

class LowCopies;
class Model;
class Wiring;
struct ParameterUse;
struct Value;

// A run of consecutive layers of a model, built on this device: a stage's part
// of it, or the whole. An ordinary torch::nn module, so parameters(), train(),
// to() and torch::optim work on it. Not thread-safe.
class Network : public torch::nn::Module {
 public:
  // A parameter used here whose owner is a layer outside this run.
  struct RemoteTie {
    std::string name;  // the owner's full name for it
    at::Tensor local;  // this run's copy of it
  };

  // Builds the layers from `first` up to `last`.
  Network(const Model& model, int first, int last);
  ~Network() override;

  // Makes forward compute in this precision from now on. Parameters stay as
  // they are.
  void compute_in(Precision precision) { precision_ = precision; }

  // The copies of parameters that forward keeps for that. It notices changed
  // parameters by itself; renewing them right after an update saves it the
  // time.
  void renew_copies();
  Bytes copied() const;

  // Takes the values that cross into the run and returns those that cross out
  // of it, both in Wiring::crossing order. With a moment, random numbers
  // depend on it; without one, or without the dispatcher hook, they come from
  // libtorch's global generator. Throws Error that names the layer when one
  // fails.
  Values forward(Values inputs, const std::optional<Moment>& moment = {});

  // Only the first of them, and where the last layer only joins it, its parts.
  Values forward_in_parts(Values inputs, const std::optional<Moment>& moment);

  // The same for a run that takes one value and gives one.
  at::Tensor forward(const at::Tensor& input,
                     const std::optional<Moment>& moment = {});

  // What this run trains, with full names. A shared parameter is here once,
  // with its owner's name, and only where its owner is.
  NamedTensors trained_parameters() const;

  // All parameters and buffers that belong in a file: as above, with the
  // frozen ones and the buffers.
  NamedTensors state() const;

  // Copies the values in. Throws Error unless names, shapes and types are
  // exactly those of state().
  void load_state(const std::map<std::string, at::Tensor>& values);

  const std::vector<RemoteTie>& remote_ties() const { return remote_ties_; }

  // "layer 'a'", or "layers 'a' to 'd'".
  std::string layers_text() const;

 private:
  struct NamedLayer {
    std::string name;
    Layer layer;
  };

  void add_child(const std::string& name,
                 std::shared_ptr<torch::nn::Module> module);
  void tie_parameters(const Model& model);
  at::Tensor parameter_of(const ParameterUse& use) const;
  Values run_layer(int index,
                   const Values& inputs,
                   const std::optional<Moment>& moment);
  // Those before `last`, and returns these values.
  Values run_layers(Values inputs,
                    const std::optional<Moment>& moment,
                    int last,
                    const std::vector<Value>& leaving);

  int end() const { return first_ + static_cast<int>(layers_.size()); }

  int first_;
  Precision precision_ = Precision::fp32;
  std::unique_ptr<LowCopies> copies_;
  std::unique_ptr<const Wiring> wiring_;
  std::vector<NamedLayer> layers_;
  std::vector<RemoteTie> remote_ties_;
};

// The first line of what went wrong, without libtorch's stack trace.
std::string first_line(const std::exception& error);

}  // namespace cleave
