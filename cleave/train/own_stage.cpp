#include "cleave/train/own_stage.h"

#include <algorithm>
#include <string>

#include "cleave/error.h"
#include "cleave/model/model.h"
#include "cleave/schedule/op.h"

namespace cleave {
namespace {

// The stages that use the tie's parameter, first to last.
std::vector<int> holders_of(const Tie& tie, const Plan& plan) {
  const std::vector<int> first_layers = first_layers_of(plan);
  std::vector<int> holders;
  for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
    const int first = first_layers[stage];
    const int end = first_layers[stage + 1];
    if (std::any_of(
            tie.uses.begin(), tie.uses.end(), [&](const ParameterUse& use) {
              return use.layer >= first && use.layer < end;
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

Stage make_stage(const Model& model, const Plan& plan, StageId stage) {
  const std::vector<int> first_layers = first_layers_of(plan);
  return Stage(model, first_layers[stage.value], first_layers[stage.value + 1]);
}

// In a forward, the layer that fails is named; elsewhere it is known which
// could.
bool concerns_all_layers(Op op) {
  return lane_of(op) == Lane::compute && op != Op::forward;
}

}  // namespace

OwnStage::OwnStage(const Model& model,
                   const Plan& plan,
                   StageId own,
                   const Training& training,
                   Transport& mirrors)
    : id(own),
      stage(make_stage(model, plan, own)),
      ties(find_ties(model, plan, stage.network(), own)),
      parameters(whole_parameters(stage.network().trained_parameters())) {
  for (const TieLink& tie : ties) {
    stage.add_at_once(tie.parameter);
  }
  stage.network().compute_in(training.precision);
  try {
    update =
        make_stage_update(training.optimizer,
                          parameters,
                          {mirrors, own, static_cast<int>(plan.stages.size())},
                          plan.stages[own.value].buckets,
                          plan.schedule.synchronisation.shard_states);
  } catch (const std::exception& error) {
    fail_in({Op::update, own, 0, {}}, stage, error);
  }
}

void fail_in(const Action& action,
             const Stage& stage,
             const std::exception& error) {
  const OpTraits& kind = traits(action.op);
  std::string place = "stage " + std::to_string(action.stage.value);
  if (kind.index == IndexOf::microbatch) {
    place += ", microbatch " + std::to_string(action.index);
  }
  place += ", " + std::string(kind.words);
  if (concerns_all_layers(action.op)) {
    place += " of " + stage.network().layers_text();
  }
  const auto* known = dynamic_cast<const Error*>(&error);
  fail(place + ": " + (known ? known->problem() : first_line(error)),
       known ? known->fix() : "");
}

}  // namespace cleave
