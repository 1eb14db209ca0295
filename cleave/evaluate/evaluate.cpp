#include "cleave/evaluate/evaluate.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>

#include "cleave/checkpoint/safetensors.h"
#include "cleave/error.h"
#include "cleave/model/network.h"

namespace cleave {
namespace {

std::shared_ptr<Network> load_network(const Model& model,
                                      const std::filesystem::path& weights) {
  const LoadedTensors loaded = load_safetensors(weights);
  std::shared_ptr<Network> network = model.build();
  try {
    network->load_state({loaded.tensors.begin(), loaded.tensors.end()});
  } catch (const Error& error) {
    fail(weights.string() + ": " + error.problem(), error.fix());
  }
  network->eval();
  return network;
}

}  // namespace

Evaluation evaluate_file(const Model& model,
                         const std::filesystem::path& weights,
                         const Dataset& data,
                         const Loss& loss,
                         std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<Network> network = load_network(model, weights);
  double sum = 0;
  std::int64_t terms = 0;
  std::int64_t right = 0;
  for (std::int64_t start = 0; start < data.size(); start += batch) {
    std::vector<std::int64_t> indices(std::min(batch, data.size() - start));
    std::iota(indices.begin(), indices.end(), start);
    const Batch part = data.get(indices);
    const at::Tensor result = network->forward(part.inputs);
    sum += loss.sum(result, part.targets).item<double>();
    terms += loss.count(part.targets);
    if (data.classes() > 0) {
      const at::Tensor answers = std::get<1>(result.max(-1));
      right += answers.eq(part.targets).sum().item<std::int64_t>();
    }
  }
  terms = std::max<std::int64_t>(1, terms);  // all may be ignored
  Evaluation evaluation{.loss = sum / static_cast<double>(terms),
                        .samples = data.size()};
  if (data.classes() > 0) {
    evaluation.accuracy =
        static_cast<double>(right) / static_cast<double>(terms);
  }
  return evaluation;
}

}  // namespace cleave
