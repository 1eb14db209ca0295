#include "cleave/train/one_device.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include <algorithm>

#include "cleave/model/model.h"

namespace cleave {
namespace {

// Adds up the gradients of one batch and returns its loss.
double backward_batch(Network& network,
                      const Batch& batch,
                      std::int64_t parts,
                      std::int64_t step,
                      const Training& training) {
  const auto count = static_cast<double>(
      std::max<std::int64_t>(1, training.loss.count(batch.targets)));
  const std::int64_t samples = batch.inputs.size(0);
  std::int64_t start = 0;
  double loss = 0;
  for (int m = 0; m < parts; ++m) {
    const std::int64_t size = samples / parts + (m < samples % parts ? 1 : 0);
    const at::Tensor result =
        network.forward(batch.inputs.narrow(0, start, size),
                        Moment{training.seed, step, Microbatch{m}});
    const at::Tensor sum =
        training.loss.sum(result, batch.targets.narrow(0, start, size));
    sum.backward(torch::full_like(sum, 1.0 / count));
    loss += sum.item<double>();
    start += size;
  }
  return loss / count;
}

}  // namespace

OneDeviceRun train_on_one_device(const Model& model,
                                 std::span<const Batch> batches,
                                 int microbatches,
                                 const Training& training) {
  const std::shared_ptr<Network> network = model.build();
  network->compute_in(training.precision);
  const NamedTensors trained = network->trained_parameters();
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : trained) {
    parameters.push_back(parameter);
  }
  const auto optimizer = training.optimizer(whole_parameters(trained));
  OneDeviceRun run;
  std::int64_t step = 0;
  for (const Batch& batch : batches) {
    ++step;
    run.losses.push_back(backward_batch(
        *network,
        batch,
        std::min<std::int64_t>(microbatches, batch.inputs.size(0)),
        step,
        training));
    if (training.clip > 0) {
      torch::nn::utils::clip_grad_norm_(parameters, training.clip);
    }
    optimizer->step(training.learning_rate(step));
    for (at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = at::Tensor();
    }
  }
  run.state = network->state();
  return run;
}

}  // namespace cleave
