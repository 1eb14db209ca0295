#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cleave/data/dataset.h"
#include "cleave/model/loss.h"
#include "cleave/schedule/order.h"
#include "cleave/schedule/simulate.h"
#include "cleave/units.h"

namespace cleave {

// A schedule as ranks run it, and its order.
class PassSchedule {
 public:
  explicit PassSchedule(Schedule schedule)
      : schedule_(std::move(schedule)), order_(schedule_) {}
  PassSchedule(const PassSchedule&) = delete;
  PassSchedule& operator=(const PassSchedule&) = delete;

  const Row& row(Rank rank) const { return schedule_.rows.at(rank.value); }
  const Schedule& schedule() const { return schedule_; }
  const Order& order() const { return order_; }

 private:
  Schedule schedule_;
  Order order_;
};

// One pass of a batch through the pipeline, as every rank is told of it.
struct Pass {
  std::shared_ptr<const PassSchedule> schedule;  // shared by ranks that read it
  std::vector<Batch> microbatches;  // the first stage reads the inputs, the
                                    // last one the targets; may be none
  int first = 0;  // of them, counted over the batches of all replicas
  const Loss* loss = nullptr;
  std::int64_t count = 0;  // the loss's count over the whole batch
  std::uint64_t seed = 0;
  std::int64_t step = 0;  // counts from 1
  double learning_rate = 0;
  double clip = 0;      // largest norm of all gradients; 0: any
  bool traced = false;  // when every action ran is wanted
};

// When an action ran, on the host's clock, and which rank ran it.
struct TimedAction {
  Span span;
  Rank by;  // in the pipeline
};

// What came of one rank's row.
struct PassResult {
  double loss_sum = 0;       // with the last stage: over all microbatches
  std::int64_t correct = 0;  // with it, evaluating classes: right answers
  Seconds busy;              // computing, not waiting
  std::optional<double> gradient_norm;  // of all stages, where clipping is on
  Bytes peak_memory;                    // of the rank's device, so far
  std::vector<TimedAction> timed_actions;  // where the pass is traced
};

}  // namespace cleave
