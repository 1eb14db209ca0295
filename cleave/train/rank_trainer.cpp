#include "cleave/train/rank_trainer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>

#include "cleave/comm/collectives.h"
#include "cleave/comm/group.h"
#include "cleave/device/clock.h"
#include "cleave/device/memory.h"
#include "cleave/plan/plan_schedule.h"

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

Stage make_stage(const Model& model, const Plan& plan, StageId stage) {
  const LayerRange range = range_of(plan, stage.value);
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

// The stage's own tensor for a shared parameter.
at::Tensor local_tensor(const Network& network, const std::string& name) {
  for (const auto& [own, parameter] : network.trained_parameters()) {
    if (own == name) {
      return parameter;
    }
  }
  for (const Network::RemoteTie& remote : network.remote_ties()) {
    if (remote.name == name) {
      return remote.local;
    }
  }
  return {};
}

std::vector<TieLink> find_ties(const Model& model,
                               const Plan& plan,
                               const Network& network,
                               StageId stage) {
  std::vector<TieLink> links;
  const std::vector<Tie> ties = model.ties();
  for (size_t index = 0; index < ties.size(); ++index) {
    const std::vector<int> holders = holders_of(ties[index], plan);
    const auto here = std::ranges::find(holders, stage.value);
    if (holders.size() < 2 || here == holders.end()) {
      continue;
    }
    TieLink link{.index = static_cast<int>(index),
                 .parameter = local_tensor(network, ties[index].name)};
    if (!link.parameter.defined() || !link.parameter.requires_grad()) {
      continue;  // frozen: every stage has its value, and nothing changes it
    }
    if (here != holders.begin()) {
      link.earlier = StageId{*(here - 1)};
    }
    if (here + 1 != holders.end()) {
      link.later = StageId{*(here + 1)};
    }
    links.push_back(link);
  }
  return links;
}

// Adds the time it lives to `total`.
class BusyTimer {
 public:
  explicit BusyTimer(Seconds& total) : total_(total) {}
  ~BusyTimer() {
    const std::chrono::duration<double> spent = Clock::now() - start_;
    total_ += Seconds{spent.count()};
  }
  BusyTimer(const BusyTimer&) = delete;
  BusyTimer& operator=(const BusyTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  Seconds& total_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

RankTrainer::OwnStage::OwnStage(const Model& model,
                                const Plan& plan,
                                StageId own)
    : id(own),
      stage(make_stage(model, plan, own)),
      ties(find_ties(model, plan, stage.network(), own)),
      parameters(tensors_of(stage.network().trained_parameters())) {
  for (const TieLink& tie : ties) {
    stage.add_at_once(tie.parameter);
  }
}

RankTrainer::RankTrainer(const Model& model,
                         const Plan& plan,
                         const TrainerOptions& options,
                         std::unique_ptr<Transport> transport,
                         Lending* lending)
    : options_(options),
      transport_(std::move(transport)),
      mesh_(mesh_of(plan)),
      pipeline_(group_of(*transport_, mesh_.pipeline_of(transport_->rank()))),
      mirrors_(group_of(*transport_, mesh_.mirrors_of(transport_->rank()))),
      placement_(placement_of(plan)) {
  for (StageId id; id.value < std::ssize(placement_); ++id.value) {
    if (placement_[id.value] == pipeline_->rank()) {
      OwnStage& own = stages_.emplace_back(model, plan, id);
      own.stage.network().compute_in(options.precision);
      const Mirrors mirrors{
          *mirrors_, id, static_cast<int>(placement_.size()), options.bucket};
      in_update(own, [&] {
        own.update = make_stage_update(
            options.optimizer, own.parameters, mirrors, plan.shard);
      });
    }
  }
  executor_.emplace(parts(), placement_, *pipeline_, lending);
}

RankTrainer::OwnStage& RankTrainer::own(StageId stage) {
  return *std::ranges::find(stages_, stage, &OwnStage::id);
}

std::vector<StagePart> RankTrainer::parts() {
  std::vector<StagePart> parts;
  for (OwnStage& own : stages_) {
    parts.push_back({own.id, &own.stage, own.ties});
  }
  return parts;
}

StepResult RankTrainer::train(const Pass& pass) {
  const double learning_rate = options_.learning_rate.at(pass.step);
  const bool clips = options_.clip > 0;
  GradientListener listener;
  listener.microbatch_done = [&](StageId done, bool all, Rank by) {
    own(done).update->add();
    if (all) {
      own(done).update->begin();
      if (!clips && !is_mirrored()) {
        update(own(done), learning_rate, by);
      }
    }
  };
  if (is_mirrored()) {
    listener.parameter_done = [&](StageId stage, const at::Tensor& parameter) {
      own(stage).update->ready(parameter);
    };
  }
  StepResult result{executor_->run(pass, listener)};
  if (is_mirrored()) {
    finish_sums(pass);
  }
  if (clips || is_given_values()) {
    executor_->help(pass.step);
  }
  if (clips) {
    clip_gradients(result);
  }
  for (OwnStage& own : stages_) {
    if (clips || is_mirrored()) {
      update(own, learning_rate, pipeline_->rank());
    }
    result.busy += own.updated.span.end - own.updated.span.start;
    if (pass.traced) {
      result.timed_actions.push_back(own.updated);
    }
  }
  share_tied_values();
  result.peak_memory = MemoryScope::current()->peak();
  return result;
}

// A replica without microbatches adds nothing, but the others count on it.
void RankTrainer::finish_sums(const Pass& pass) {
  transport_->note({"sum of gradients", {}, {}});
  for (OwnStage& own : stages_) {
    if (pass.microbatches.empty()) {
      own.update->begin();
    }
  }
  for (OwnStage& own : stages_) {
    own.update->finish(pass.most);
  }
}

StepResult RankTrainer::evaluate(const Pass& pass) {
  share_buffers();
  StepResult result{executor_->run(pass)};
  result.peak_memory = MemoryScope::current()->peak();
  return result;
}

// What layers keep beside their weights (the averages of a batch norm) comes
// from other data on every replica; the first one's counts.
void RankTrainer::share_buffers() {
  if (!is_mirrored()) {
    return;
  }
  const torch::NoGradGuard no_grad;
  for (const OwnStage& own : stages_) {
    std::vector<at::Tensor> buffers;
    for (const auto& [name, tensor] : own.stage.network().state()) {
      if (!tensor.requires_grad()) {
        buffers.push_back(tensor);
      }
    }
    // Copies: the first replica may go on while others still read.
    std::vector<at::Tensor> copies;
    copies.reserve(buffers.size());
    for (const at::Tensor& buffer : buffers) {
      copies.push_back(buffer.clone());
    }
    const Message first = broadcast(*mirrors_, copies, Rank{0});
    for (size_t i = 0; i < buffers.size(); ++i) {
      buffers[i].copy_(first[i]);
    }
  }
}

void RankTrainer::update(OwnStage& own, double learning_rate, Rank by) {
  transport_->note({"update", own.id, {}});
  const Seconds start = steady_now();
  in_update(own, [&] {
    own.update->step(learning_rate);
    own.stage.network().renew_copies();
  });
  own.updated = {{{Op::update, {}, own.id}, start, steady_now()}, by};
}

// Tells of what goes wrong in it.
void RankTrainer::in_update(const OwnStage& own,
                            const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    fail_in({Op::update, {}, own.id}, own.stage, error);
  }
}

// Whether other stages own parameters that this rank uses too.
bool RankTrainer::is_given_values() const {
  return std::ranges::any_of(stages_, [](const OwnStage& own) {
    return std::ranges::any_of(
        own.ties, [](const TieLink& tie) { return tie.earlier.has_value(); });
  });
}

// The owner of a shared parameter hands its new value on, stage by stage. It
// writes to it again only after the next step's gradients, which come after
// the others have read it.
void RankTrainer::share_tied_values() {
  const torch::NoGradGuard no_grad;
  const int stages = static_cast<int>(placement_.size());
  for (const OwnStage& own : stages_) {
    for (const TieLink& tie : own.ties) {
      at::Tensor parameter = tie.parameter;
      if (tie.earlier) {
        parameter.copy_(
            pipeline_
                ->receive(placement_[tie.earlier->value],
                          tie_tag(Channel::tied_value, tie, own.id, stages))
                .at(0));
      }
      if (tie.later) {
        pipeline_->send(placement_[tie.later->value],
                        tie_tag(Channel::tied_value, tie, *tie.later, stages),
                        {parameter.detach()});
      }
    }
  }
}

// The same arithmetic as torch::nn::utils::clip_grad_norm_ on the unsplit
// network: one norm per parameter, in the order of the layers, and the norm of
// those. So the cut does not change a bit of it.
void RankTrainer::clip_gradients(StepResult& result) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;  // of every stage, one per parameter
  for (const OwnStage& own : stages_) {
    const BusyTimer timer(result.busy);
    const std::vector<at::Tensor> of_stage = own.update->norms();
    norms.push_back(of_stage.empty() ? at::empty({0}, at::kFloat)
                                     : at::stack(of_stage));
  }
  const at::Tensor norm = global_norm(norms);
  const at::Tensor factor =
      (options_.clip / (norm + 1e-6)).clamp(std::nullopt, 1.0);
  const BusyTimer timer(result.busy);
  for (const OwnStage& own : stages_) {
    own.update->scale(factor);
  }
  result.gradient_norm = norm.item<double>();
}

at::Tensor RankTrainer::global_norm(const std::vector<at::Tensor>& own_norms) {
  const Tag norms_tag{Channel::norms, 0, {}};
  const Tag global_tag{Channel::global_norm, 0, {}};
  constexpr Rank kAdder{0};
  if (pipeline_->rank() != kAdder) {
    pipeline_->send(kAdder, norms_tag, own_norms);
    return pipeline_->receive(kAdder, global_tag).at(0);
  }
  std::vector<at::Tensor> norms(placement_.size());  // by stage
  for (Rank rank; rank.value < pipeline_->ranks(); ++rank.value) {
    const std::vector<at::Tensor> of_rank =
        rank == kAdder ? own_norms : pipeline_->receive(rank, norms_tag);
    auto next = of_rank.begin();
    for (size_t stage = 0; stage < placement_.size(); ++stage) {
      if (placement_[stage] == rank) {
        norms[stage] = *next++;
      }
    }
  }
  const at::Tensor all = at::cat(norms);
  at::Tensor norm = all.numel() == 1 ? all[0] : all.norm(2.0);
  for (int rank = 1; rank < pipeline_->ranks(); ++rank) {
    pipeline_->send({rank}, global_tag, {norm});
  }
  return norm;
}

Bytes RankTrainer::optimizer_states() const {
  Bytes all;
  for (const OwnStage& own : stages_) {
    all += own.update->states();
  }
  return all;
}

std::uint64_t RankTrainer::fingerprint() const {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const OwnStage& own : stages_) {
    for (const at::Tensor& parameter : own.parameters) {
      const at::Tensor values = parameter.detach().contiguous();
      const auto* const bytes =
          static_cast<const unsigned char*>(values.const_data_ptr());
      for (std::size_t i = 0; i < values.nbytes(); ++i) {
        hash = (hash ^ bytes[i]) * 1099511628211U;
      }
    }
  }
  return hash;
}

std::map<StageId, NamedTensors> RankTrainer::state() {
  transport_->note({"save", {}, {}});
  share_buffers();
  std::map<StageId, NamedTensors> copies;
  if (replica() > 0) {
    return copies;
  }
  for (const OwnStage& own : stages_) {
    for (const auto& [name, tensor] : own.stage.network().state()) {
      copies[own.id].emplace_back(name, tensor.detach().clone());
    }
  }
  return copies;
}

}  // namespace cleave
