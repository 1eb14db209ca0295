#include "cleave/report/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "cleave/report/drawing.h"

namespace cleave {
namespace {

using TraceEvent = nlohmann::ordered_json;

constexpr int kProcess = 1;
constexpr int kStepsLane = 1;

// The lanes of a rank: collectives run while messages do.
enum class TraceLane { compute, messages, sums };
constexpr int kRankLanes = 3;

int lane_number(int rank, TraceLane lane) {
  return kStepsLane + 1 + kRankLanes * rank + static_cast<int>(lane);
}

TraceLane trace_lane(Op op) {
  return is_compute(op)      ? TraceLane::compute
         : is_collective(op) ? TraceLane::sums
                             : TraceLane::messages;
}

// Of a slice, for viewers to filter by.
const char* category(TraceLane lane) {
  switch (lane) {
    case TraceLane::compute:
      return "compute";
    case TraceLane::messages:
      return "message";
    case TraceLane::sums:
      return "sum";
  }
  return "";
}

// How far a microbatch has come on its way through the stages and back.
// Without a leg nobody waits for what the action makes.
struct Way {
  enum class Leg { step, out, back, none };

  Leg leg = Leg::step;
  int stage = 0;  // on the way back counted backwards
  int place = 0;  // a receive, what it is for, and its send

  auto operator<=>(const Way&) const = default;
};

Way way(const Action& action) {
  const int stage = action.stage.value;
  switch (action.op) {
    case Op::receive_values:
      return {Way::Leg::out, stage, 0};
    case Op::forward:
      return {Way::Leg::out, stage, 1};
    case Op::send_values:
      return {Way::Leg::out, stage, 2};
    case Op::receive_gradients:
      return {Way::Leg::back, -stage, 0};
    case Op::backward:
      return {Way::Leg::back, -stage, 1};
    case Op::send_gradients:
      return {Way::Leg::back, -stage, 2};
    default:
      return {Way::Leg::none};
  }
}

// An event and what decides its place in the file. Viewers sort by time and
// keep the file's order where times are equal; they tie an arrow to the slice
// they saw last on its lane. So an arrow stands right behind its slice, and the
// slices of one microbatch are in the order of its way.
struct Entry {
  std::int64_t at = 0;  // nanoseconds
  Way way;
  int microbatch = 0;
  int flow = 0;  // the number of the arrow; 0: a slice
  TraceEvent event;
};

bool comes_before(const Entry& a, const Entry& b) {
  const auto key = [](const Entry& entry) {
    return std::tuple(
        entry.at, entry.way, entry.microbatch, entry.flow > 0 ? 1 : 0);
  };
  return key(a) < key(b);
}

// Viewers cut off what is less than a nanosecond. A quarter more keeps them
// from cutting off a whole one where the decimal number is a hair too small,
// which would make neighbours overlap.
double start_microseconds(std::int64_t nanoseconds) {
  return (static_cast<double>(nanoseconds) + 0.25) / 1000;
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

TraceEvent slice(const std::string& name,
                 const char* category,
                 int lane,
                 std::int64_t start,
                 std::int64_t end) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", start_microseconds(start)},
          {"dur", microseconds(end - start)},
          {"pid", kProcess},
          {"tid", lane}};
}

TraceEvent about_lane(const char* what, int lane, TraceEvent args) {
  return {{"name", what},
          {"ph", "M"},
          {"pid", kProcess},
          {"tid", lane},
          {"args", std::move(args)}};
}

class TraceWriter {
 public:
  TraceWriter(const std::vector<StepTrace>& steps,
              const std::vector<std::string>& devices)
      : steps_(steps), devices_(devices) {
    Seconds first{std::numeric_limits<double>::infinity()};
    for (const StepTrace& step : steps) {
      ranks_ = std::max(ranks_, step.measured.rows.size());
      for (const auto& row : step.measured.rows) {
        for (const Span& span : row) {
          first = std::min(first, step.zero + span.start);
        }
      }
    }
    origin_ = first;
  }

  std::string write() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      add_step(i);
      add_spans(steps_[i]);
    }
    std::ranges::stable_sort(entries_, comes_before);
    name_lanes();
    std::map<int, int> seen;
    for (Entry& entry : entries_) {
      if (entry.flow == 0) {
        append(entry.event);
      } else if (const int all = points_[entry.flow]; all > 1) {
        const int place = ++seen[entry.flow];
        entry.event["ph"] = place == 1 ? "s" : place == all ? "f" : "t";
        append(entry.event);
      }
    }
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + events_ + "\n]}\n";
  }

 private:
  std::int64_t nanoseconds(const StepTrace& step, Seconds time) const {
    return std::llround((step.zero + time - origin_).value * 1e9);
  }

  // When the first computation starts and the last ends; none without any.
  std::optional<std::pair<std::int64_t, std::int64_t>> extent(
      const StepTrace& step) const {
    std::optional<std::pair<std::int64_t, std::int64_t>> found;
    for (const auto& row : step.measured.rows) {
      for (const Span& span : row) {
        if (is_compute(span.action.op)) {
          const std::int64_t start = nanoseconds(step, span.start);
          const std::int64_t end = nanoseconds(step, span.end);
          found = found ? std::pair(std::min(found->first, start),
                                    std::max(found->second, end))
                        : std::pair(start, end);
        }
      }
    }
    return found;
  }

  void add_step(std::size_t index) {
    const auto time = extent(steps_[index]);
    if (!time) {
      return;
    }
    auto [start, end] = *time;
    // The next step begins on the first device while the last ones finish.
    const auto next =
        index + 1 < steps_.size() ? extent(steps_[index + 1]) : std::nullopt;
    end = next ? std::clamp(next->first, start, end) : end;
    const std::string name = "step " + std::to_string(steps_[index].step);
    entries_.push_back(
        {.at = start, .event = slice(name, "step", kStepsLane, start, end)});
  }

  void add_spans(const StepTrace& step) {
    std::map<int, int> flows;  // by microbatch
    for (std::size_t rank = 0; rank < step.measured.rows.size(); ++rank) {
      for (const Span& span : step.measured.rows[rank]) {
        int flow = 0;
        if (way(span.action).leg != Way::Leg::none) {
          const auto [known, is_new] =
              flows.try_emplace(span.action.index, flow_count_ + 1);
          flow_count_ += is_new ? 1 : 0;
          flow = known->second;
        }
        add_span(step, span, static_cast<int>(rank), flow);
      }
    }
  }

  // A flow of zero: no arrow.
  void add_span(const StepTrace& step, const Span& span, int rank, int flow) {
    const Action& action = span.action;
    const TraceLane kind = trace_lane(action.op);
    const int lane = lane_number(rank, kind);
    const std::int64_t start = nanoseconds(step, span.start);
    const std::int64_t end = std::max(start, nanoseconds(step, span.end));
    Entry entry{
        .at = start,
        .way = way(action),
        .microbatch = action.index,
        .event = slice(to_text(action), category(kind), lane, start, end)};
    entry.event["args"] = about(action, step.step);
    entries_.push_back(entry);
    if (flow > 0) {
      // A receive waits from before its message was sent: its end is what
      // follows the send.
      entry.at = is_receive(action.op) ? std::max(start, end - 1) : start;
      entry.flow = flow;
      entry.event = arrow(action.index, lane, entry.at, flow);
      entries_.push_back(std::move(entry));
      ++points_[flow];
    }
  }

  static TraceEvent about(const Action& action, std::int64_t step) {
    const OpTraits& kind = traits(action.op);
    TraceEvent args{
        {"kind", kind.words}, {"stage", action.stage.value}, {"step", step}};
    if (kind.index != IndexOf::nothing) {
      args[kind.index == IndexOf::bucket ? "bucket" : "microbatch"] =
          action.index;
    }
    return args;
  }

  // Where it stands among its microbatch's arrows is known when all are there.
  static TraceEvent arrow(int microbatch, int lane, std::int64_t at, int flow) {
    return {{"name", "microbatch " + std::to_string(microbatch)},
            {"cat", "microbatch"},
            {"ph", ""},
            {"bp", "e"},
            {"id", flow},
            {"ts", start_microseconds(at)},
            {"pid", kProcess},
            {"tid", lane}};
  }

  void name_lanes() {
    append(about_lane("process_name", kStepsLane, {{"name", "cleave"}}));
    name_lane(kStepsLane, "steps");
    const std::size_t ranks = std::max(ranks_, devices_.size());
    for (std::size_t i = 0; i < ranks; ++i) {
      const int rank = static_cast<int>(i);
      const std::string name =
          i < devices_.size() ? devices_[i] : "rank " + std::to_string(rank);
      name_lane(lane_number(rank, TraceLane::compute), name);
      name_lane(lane_number(rank, TraceLane::messages), name + " messages");
      name_lane(lane_number(rank, TraceLane::sums), name + " sums");
    }
  }

  void name_lane(int lane, const std::string& name) {
    append(about_lane("thread_name", lane, {{"name", name}}));
    append(about_lane("thread_sort_index", lane, {{"sort_index", lane}}));
  }

  void append(const TraceEvent& event) {
    events_ += events_.empty() ? "\n" : ",\n";
    // Names come from users; a broken byte is no reason to lose a trace.
    events_ += event.dump(-1, ' ', false, TraceEvent::error_handler_t::replace);
  }

  const std::vector<StepTrace>& steps_;
  const std::vector<std::string>& devices_;
  std::size_t ranks_ = 0;
  Seconds origin_;  // the first start of all
  std::vector<Entry> entries_;
  int flow_count_ = 0;
  std::map<int, int> points_;  // of every flow: how many arrows it has
  std::string events_;         // as JSON, separated by commas
};

}  // namespace

std::string trace_json(const std::vector<StepTrace>& steps,
                       const std::vector<std::string>& devices) {
  return TraceWriter(steps, devices).write();
}

}  // namespace cleave
