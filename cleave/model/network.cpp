#include "cleave/model/network.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <set>
#include <sstream>

#include "cleave/device/device.h"
#include "cleave/device/processor.h"
#include "cleave/error.h"
#include "cleave/model/intercept/low_precision.h"
#include "cleave/model/intercept/random.h"
#include "cleave/model/intercept/weight_queue.h"
#include "cleave/model/model.h"
#include "cleave/model/wiring.h"

namespace cleave {
namespace {

// Opens torch::nn::Module's table of its own parameters, which offers no way
// to take one out.
struct OwnParameters : torch::nn::Module {
  static auto& of(torch::nn::Module& module) {
    return module.*(&OwnParameters::parameters_);
  }
};

// Takes a shared parameter out of its module's table, so that it is neither
// updated nor saved twice. The module itself keeps using the tensor.
void forget_parameter(torch::nn::Module& module, const std::string& path) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    OwnParameters::of(module).erase(path);
  } else {
    forget_parameter(*module.named_children()[path.substr(0, dot)],
                     path.substr(dot + 1));
  }
}

// Makes `use` the same parameter as `owner`: one memory, and all gradients of
// `use` go where those of `owner` go, in autograd's own order.
void link_parameter(const at::Tensor& use, const at::Tensor& owner) {
  const bool trained = owner.requires_grad();
  use.requires_grad_(false);
  use.set_data(owner.data());
  if (trained) {
    torch::autograd::impl::set_gradient_edge(
        use, {torch::autograd::impl::grad_accumulator(owner), 0});
  }
}

void check_same_shape(const Tie& tie,
                      const at::Tensor& owner,
                      const std::string& user,
                      const at::Tensor& use) {
  if (use.sizes() != owner.sizes() || use.dtype() != owner.dtype()) {
    std::ostringstream what;
    what << "layer '" << user << "' shares '" << tie.name << "' "
         << owner.sizes() << ", but its own parameter is " << use.sizes();
    fail(what.str(), "Shared parameters have one shape.");
  }
}

std::string shapes_of(const Values& values) {
  std::ostringstream text;
  for (const at::Tensor& value : values) {
    text << (&value == values.data() ? "" : ", ") << value.sizes();
  }
  return text.str();
}

[[noreturn]] void fail_in_layer(const std::string& name,
                                const Values& inputs,
                                const std::exception& error) {
  fail("layer '" + name + "' failed on inputs " + shapes_of(inputs) + ": " +
           first_line(error),
       "");
}

}  // namespace

std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr
                               ? torch_error->what_without_backtrace()
                               : error.what();
  return text.substr(0, text.find('\n'));
}

Network::Network(const Model& model, int first, int last)
    : torch::nn::Module(model.name()),
      first_(first),
      copies_(std::make_unique<LowCopies>()),
      wiring_(std::make_unique<const Wiring>(model.wiring())) {
  avoid_broken_tiles();
  const std::vector<std::string> names = model.layer_names();
  for (int index = first; index < last; ++index) {
    layers_.push_back({names[index], model.build_layer(index)});
    add_child(names[index], layers_.back().layer.module);
  }
  tie_parameters(model);
}

Network::~Network() = default;

void Network::renew_copies() {
  copies_->renew();
}

Bytes Network::copied() const {
  return copies_->bytes();
}

// libtorch allows no dots in a child's name: "h.0.mlp" becomes children in
// children, which gives the parameters the same full names.
void Network::add_child(const std::string& name,
                        std::shared_ptr<torch::nn::Module> module) {
  torch::nn::Module* parent = this;
  size_t start = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos;
       start = dot + 1, dot = name.find('.', start)) {
    const std::string part = name.substr(start, dot - start);
    const auto children = parent->named_children();
    const auto* known = children.find(part);
    parent =
        known != nullptr
            ? known->get()
            : parent
                  ->register_module(part, std::make_shared<torch::nn::Module>())
                  .get();
  }
  parent->register_module(name.substr(start), std::move(module));
}

void Network::tie_parameters(const Model& model) {
  for (const Tie& tie : model.ties()) {
    at::Tensor owner;  // the first use in this run: the owner's, or a copy
    for (const ParameterUse& use : tie.uses) {
      if (use.layer < first_ || use.layer >= end()) {
        continue;
      }
      at::Tensor local = parameter_of(use);
      NamedLayer& user = layers_[use.layer - first_];
      if (owner.defined()) {
        check_same_shape(tie, owner, user.name, local);
        link_parameter(local, owner);
        forget_parameter(*user.layer.module, use.parameter);
        continue;
      }
      owner = local;
      if (use.layer != tie.uses.front().layer) {
        const Layer original = model.build_layer(tie.uses.front().layer);
        const auto parameters = original.module->named_parameters();
        const at::Tensor* value = parameters.find(tie.uses.front().parameter);
        if (value == nullptr) {
          fail("there is no parameter '" + tie.name + "' to share", "");
        }
        check_same_shape(tie, *value, user.name, local);
        const torch::NoGradGuard no_grad;
        local.copy_(*value);
        local.requires_grad_(value->requires_grad());
        remote_ties_.push_back({tie.name, local});
        forget_parameter(*user.layer.module, use.parameter);
      }
    }
  }
}

at::Tensor Network::parameter_of(const ParameterUse& use) const {
  const NamedLayer& user = layers_[use.layer - first_];
  const auto parameters = user.layer.module->named_parameters();
  const at::Tensor* parameter = parameters.find(use.parameter);
  if (parameter == nullptr) {
    fail("layer '" + user.name + "' has no parameter '" + use.parameter +
             "' to share",
         "");
  }
  return *parameter;
}

Values Network::forward(Values inputs, const std::optional<Moment>& moment) {
  return run_layers(std::move(inputs), moment, end(), wiring_->crossing(end()));
}

Values Network::forward_in_parts(Values inputs,
                                 const std::optional<Moment>& moment) {
  const int last = end() - 1;
  if (layers_.back().layer.joins) {
    return run_layers(std::move(inputs), moment, last, wiring_->reads(last));
  }
  Values results = forward(std::move(inputs), moment);
  results.resize(1);
  return results;
}

Values Network::run_layers(Values inputs,
                           const std::optional<Moment>& moment,
                           int last,
                           const std::vector<Value>& leaving) {
  // Always, so that a network has the same bits in a pipeline and in a loop.
  const SplittingForward products;
  std::optional<LowPrecisionForward> low;
  if (precision_ == Precision::bf16) {
    low.emplace(*copies_);
  }
  const std::vector<Value> entering = wiring_->crossing(first_);
  if (inputs.size() != entering.size()) {
    fail("the layers from '" + layers_.front().name + "' on take " +
             std::to_string(entering.size()) + " values, not " +
             std::to_string(inputs.size()),
         "");
  }
  std::map<Value, at::Tensor> live;
  for (size_t i = 0; i < entering.size(); ++i) {
    live[entering[i]] = std::move(inputs[i]);
  }
  for (int index = first_; index < last; ++index) {
    Values arguments;
    for (const Value& value : wiring_->reads(index)) {
      arguments.push_back(live.at(value));
    }
    std::erase_if(live, [&](const auto& entry) {
      return wiring_->is_dead(entry.first, index + 1);
    });
    Values outputs = run_layer(index, arguments, moment);
    for (size_t i = 0; i < outputs.size(); ++i) {
      live[{index, static_cast<int>(i)}] = std::move(outputs[i]);
    }
  }
  Values result;
  for (const Value& value : leaving) {
    result.push_back(live.at(value));
  }
  return result;
}

at::Tensor Network::forward(const at::Tensor& input,
                            const std::optional<Moment>& moment) {
  return forward(Values{input}, moment).at(0);
}

Values Network::run_layer(int index,
                          const Values& inputs,
                          const std::optional<Moment>& moment) {
  const NamedLayer& named = layers_[index - first_];
  std::optional<RandomStream> stream;
  // Without the hook the streams of concurrent stages would exclude each other.
  if (moment && process_hooks().dispatcher) {
    stream.emplace(random_key(*moment, named.name));
  }
  Values outputs;
  try {
    outputs = named.layer.forward(inputs);
  } catch (const std::exception& error) {
    fail_in_layer(named.name, inputs, error);
  }
  const auto expected = static_cast<size_t>(wiring_->outputs(index));
  if (outputs.size() != expected) {
    fail("layer '" + named.name + "' made " + std::to_string(outputs.size()) +
             " tensors, not " + std::to_string(expected),
         "Declare how many it makes with outputs().");
  }
  return outputs;
}

std::string Network::layers_text() const {
  const std::string& first = layers_.front().name;
  const std::string& last = layers_.back().name;
  return layers_.size() == 1 ? "layer '" + first + "'"
                             : "layers '" + first + "' to '" + last + "'";
}

// A layer may have a module under two names.
NamedTensors Network::trained_parameters() const {
  NamedTensors trained;
  std::set<const void*> seen;
  for (const NamedLayer& named : layers_) {
    for (const auto& parameter : named.layer.module->named_parameters()) {
      const at::Tensor& value = parameter.value();
      if (value.requires_grad() &&
          seen.insert(value.unsafeGetTensorImpl()).second) {
        trained.emplace_back(named.name + "." + parameter.key(), value);
      }
    }
  }
  return trained;
}

NamedTensors Network::state() const {
  NamedTensors tensors;
  for (const NamedLayer& named : layers_) {
    for (const auto& parameter : named.layer.module->named_parameters()) {
      tensors.emplace_back(named.name + "." + parameter.key(),
                           parameter.value());
    }
    for (const auto& buffer : named.layer.module->named_buffers()) {
      tensors.emplace_back(named.name + "." + buffer.key(), buffer.value());
    }
  }
  return tensors;
}

void Network::load_state(const std::map<std::string, at::Tensor>& values) {
  const NamedTensors own = state();
  std::set<std::string> unknown;
  for (const auto& value : values) {
    unknown.insert(value.first);
  }
  for (const auto& [name, tensor] : own) {
    const auto value = values.find(name);
    if (value == values.end()) {
      fail("the weights lack '" + name + "'",
           "They must come from this same model.");
    }
    if (value->second.sizes() != tensor.sizes() ||
        value->second.dtype() != tensor.dtype()) {
      std::ostringstream what;
      what << "'" << name << "' is " << value->second.dtype() << " "
           << value->second.sizes() << " in the weights and " << tensor.dtype()
           << " " << tensor.sizes() << " in the model";
      fail(what.str(), "They must come from this same model.");
    }
    unknown.erase(name);
  }
  if (!unknown.empty()) {
    fail("the weights hold '" + *unknown.begin() +
             "', which the model does not have",
         "They must come from this same model.");
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) {
    at::Tensor(tensor).copy_(values.at(name));
  }
}

}  // namespace cleave
