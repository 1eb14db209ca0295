#pragma once

#include <utility>
#include <vector>

#include "cleave/event.h"

namespace cleave {

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
