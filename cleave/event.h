#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cleave/units.h"

// What the library tells the world. It never prints: sinks (report/) turn
// events into progress bars, step lines and logs.
namespace cleave {

// Once, before the first step.
struct RunStarted {
  std::string model;
  int stages = 1;
  int replicas = 1;      // of the pipeline; each reads its own part of a batch
  int microbatches = 1;  // of each
  std::string schedule;
  std::int64_t steps = 0;  // how many this run will take
  std::int64_t epochs = 0;
  std::int64_t batch = 0;
  std::optional<Seconds> predicted_step;  // where the plan has a prediction
};

// After every optimizer step. Steps count from 1.
struct StepDone {
  std::int64_t step = 0;
  std::int64_t epoch = 0;  // counts from 1
  std::int64_t samples = 0;
  double loss = 0;
  double learning_rate = 0;
  std::optional<double> gradient_norm;  // where clipping asked for it
  Seconds duration;
  double bubble = 0;               // share of the devices' time spent waiting
  std::vector<Bytes> peak_memory;  // one per device, since the run's start
};

// How well a network does on a data set.
struct Evaluation {
  double loss = 0;
  std::optional<double> accuracy;  // where the data has classes
  std::int64_t samples = 0;
};

struct Evaluated {
  std::int64_t step = 0;
  std::string data;  // "test", "train"
  Evaluation evaluation;
};

// Once, after the last step or when the run was stopped before it.
struct RunEnded {
  std::int64_t steps = 0;
  bool interrupted = false;
  Seconds duration;
  Seconds median_step;       // zero when no step was taken
  Seconds median_computing;  // of a step, by a device on average
  std::optional<Seconds> predicted_step;
  std::optional<Seconds> predicted_computing;
};

using Event = std::variant<RunStarted, StepDone, Evaluated, RunEnded>;

// Takes events, one at a time, on the thread that runs the trainer.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on(const Event& event) = 0;
};

// Hands every event to several sinks, in their order. Borrows them.
class FanOutSink : public EventSink {
 public:
  explicit FanOutSink(std::vector<EventSink*> sinks)
      : sinks_(std::move(sinks)) {}

  void on(const Event& event) override {
    for (EventSink* sink : sinks_) {
      sink->on(event);
    }
  }

 private:
  std::vector<EventSink*> sinks_;
};

}  // namespace cleave
