#include "cleave/train/rank_trainer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "cleave/train/busy_timer.h"

namespace cleave {
namespace {

// The layers of stage `stage`, as indices into the model.
struct LayerRange {
  int first = 0;
  int last = 0;
};

LayerRange range_of(const Plan& plan, int stage) {
  int first = 0;
  for (int earlier = 0; earlier < stage; ++earlier) {
    first += static_cast<int>(plan.stages[earlier].layers.size());
  }
  return {first, first + static_cast<int>(plan.stages[stage].layers.size())};
}

Stage make_stage(const Model& model, const Plan& plan, Rank rank) {
  const LayerRange range = range_of(plan, rank.value);
  return Stage(model, range.first, range.last);
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) {
    tensors.push_back(tensor);
  }
  return tensors;
}

// The stages that use the tie's parameter, first to last.
std::vector<int> holders_of(const Tie& tie, const Plan& plan) {
  std::vector<int> holders;
  for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
    const LayerRange range = range_of(plan, stage);
    if (std::any_of(
            tie.uses.begin(), tie.uses.end(), [&](const ParameterUse& use) {
              return use.layer >= range.first && use.layer < range.last;
            })) {
      holders.push_back(stage);
    }
  }
  return holders;
}

}  // namespace

RankTrainer::RankTrainer(const Model& model,
                         const Plan& plan,
                         const TrainerOptions& options,
                         std::unique_ptr<Transport> transport)
    : options_(options),
      transport_(std::move(transport)),
      stage_(make_stage(model, plan, transport_->rank())),
      ties_(find_ties(model, plan)),
      parameters_(tensors_of(stage_.network().trained_parameters())),
      optimizer_(make_optimizer(options.optimizer, parameters_)),
      executor_(stage_, *transport_, ties_) {}

std::vector<TieLink> RankTrainer::find_ties(const Model& model,
                                            const Plan& plan) const {
  const int rank = transport_->rank().value;
  const Network& network = stage_.network();
  std::vector<TieLink> links;
  const std::vector<Tie> ties = model.ties();
  for (size_t index = 0; index < ties.size(); ++index) {
    const std::vector<int> holders = holders_of(ties[index], plan);
    const auto here = std::find(holders.begin(), holders.end(), rank);
    if (holders.size() < 2 || here == holders.end()) {
      continue;
    }
    TieLink link{.index = static_cast<int>(index)};
    for (const auto& [name, parameter] : network.trained_parameters()) {
      if (name == ties[index].name) {
        link.parameter = parameter;
      }
    }
    for (const Network::RemoteTie& remote : network.remote_ties()) {
      if (remote.name == ties[index].name) {
        link.parameter = remote.local;
      }
    }
    if (!link.parameter.defined() || !link.parameter.requires_grad()) {
      continue;  // frozen: every stage has its value, and nothing changes it
    }
    if (here != holders.begin()) {
      link.earlier = Rank{*(here - 1)};
    }
    if (here + 1 != holders.end()) {
      link.later = Rank{*(here + 1)};
    }
    links.push_back(link);
  }
  return links;
}

StepResult RankTrainer::train(const Pass& pass) {
  StepResult result{executor_.run(pass), {}};
  if (options_.clip > 0) {
    clip_gradients(result);
  }
  update(options_.learning_rate.at(pass.step), result);
  share_tied_values();
  return result;
}

StepResult RankTrainer::evaluate(const Pass& pass) {
  return {executor_.run(pass), {}};
}

void RankTrainer::update(double learning_rate, StepResult& result) {
  const BusyTimer timer(result.busy);
  optimizer_->step(learning_rate);
  for (at::Tensor& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
}

// The owner of a shared parameter hands its new value on, stage by stage. It
// writes to it again only after the next step's gradients, which come after
// the others have read it.
void RankTrainer::share_tied_values() {
  const torch::NoGradGuard no_grad;
  for (const TieLink& tie : ties_) {
    const Tag tag{Channel::tied_value, tie.index, {}};
    at::Tensor parameter = tie.parameter;
    if (tie.earlier) {
      parameter.copy_(transport_->receive(*tie.earlier, tag).at(0));
    }
    if (tie.later) {
      transport_->send(*tie.later, tag, {parameter.detach()});
    }
  }
}

// The same arithmetic as torch::nn::utils::clip_grad_norm_ on the unsplit
// network: one norm per parameter, in the order of the layers, and the norm of
// those. So the cut does not change a bit of it.
void RankTrainer::clip_gradients(StepResult& result) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) {
      const BusyTimer timer(result.busy);
      gradients.push_back(parameter.grad());
      norms.push_back(gradients.back().norm(2.0));
    }
  }
  const at::Tensor norm = global_norm(norms.empty() ? at::empty({0}, at::kFloat)
                                                    : at::stack(norms));
  const at::Tensor scale =
      (options_.clip / (norm + 1e-6)).clamp(std::nullopt, 1.0);
  const BusyTimer timer(result.busy);
  for (at::Tensor& gradient : gradients) {
    gradient.mul_(scale);
  }
  result.gradient_norm = norm.item<double>();
}

at::Tensor RankTrainer::global_norm(const at::Tensor& own_norms) {
  const Tag norms_tag{Channel::norms, 0, {}};
  const Tag global_tag{Channel::global_norm, 0, {}};
  constexpr Rank kAdder{0};
  if (transport_->rank() != kAdder) {
    transport_->send(kAdder, norms_tag, {own_norms});
    return transport_->receive(kAdder, global_tag).at(0);
  }
  std::vector<at::Tensor> norms{own_norms};
  for (int rank = 1; rank < transport_->ranks(); ++rank) {
    norms.push_back(transport_->receive({rank}, norms_tag).at(0));
  }
  const at::Tensor all = at::cat(norms);
  at::Tensor norm = all.numel() == 1 ? all[0] : all.norm(2.0);
  for (int rank = 1; rank < transport_->ranks(); ++rank) {
    transport_->send({rank}, global_tag, {norm});
  }
  return norm;
}

NamedTensors RankTrainer::state() const {
  NamedTensors copies;
  for (const auto& [name, tensor] : stage_.network().state()) {
    copies.emplace_back(name, tensor.detach().clone());
  }
  return copies;
}

}  // namespace cleave
