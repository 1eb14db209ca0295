#pragma once

#include <cstdint>

#include "cleave/model/loss.h"
#include "cleave/optimizer/learning_rate.h"
#include "cleave/optimizer/optimizer.h"
#include "cleave/policies.h"
#include "cleave/units.h"

namespace cleave {

// How to train; the same on every rank. Given once, to plan() and to Trainer.
struct Training {
  Loss loss = cross_entropy();
  MakeOptimizer optimizer = AdamW{};
  LearningRate learning_rate = constant_rate(1e-3);
  Precision precision = Precision::fp32;
  double clip = 0;         // largest norm of all gradients; 0: any
  std::int64_t batch = 0;  // samples of a step, for plan(); a plan has its own
  std::uint64_t seed = 0;  // of dropout and the order of the data
  Seconds patience{300};   // with a peer that sends nothing
  Bytes bucket = kDefaultBucket;  // gradients that replicas sum together
};

}  // namespace cleave
