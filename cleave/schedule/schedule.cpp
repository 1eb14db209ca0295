#include "cleave/schedule/schedule.h"

#include <algorithm>
#include <charconv>

#include "cleave/error.h"
#include "cleave/schedule/op.h"

namespace cleave {
namespace {

std::string to_text(const Row& row, bool with_stage) {
  std::string text;
  for (const Action& action : row) {
    text += text.empty() ? "" : " ";
    text += to_text(action, with_stage);
  }
  return text;
}

// Takes `separator` and everything before it off `text`; gives the latter.
std::string_view take_until(char separator, std::string_view& text) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// Takes the digits at the start of `text` off it; -1 where there are none or
// the number is too large.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, problem] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(end - text.data());
  return problem == std::errc() && number <= kLargestNumber ? number : -1;
}

std::string known_letters() {
  std::string all;
  for (const OpTraits& each : op_table()) {
    all += (all.empty() ? "" : ", ") + std::string(each.letters);
  }
  return all;
}

// Only the spelling that to_text gives: no "F01", no "F0x", no "F-1".
Action parse_action(std::string_view word, StageId stage) {
  std::string_view rest = word;
  const int named_stage = take_number(rest);
  const bool with_stage = named_stage >= 0;
  const std::string_view letters =
      rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(letters.size());
  const auto known = std::ranges::find(op_table(), letters, &OpTraits::letters);
  if (known != op_table().end()) {
    const bool has_index = known->index != IndexOf::nothing;
    const Action action{.op = known->op,
                        .stage = with_stage ? StageId{named_stage} : stage,
                        .index = has_index ? take_number(rest) : 0,
                        .step = {}};
    if (action.index >= 0 && to_text(action, with_stage) == word) {
      return action;
    }
  }
  fail("'" + std::string(word) + "' is no action of a schedule",
       "Write one of " + known_letters() +
           " and the number of the microbatch or bucket, such as F0, with the "
           "stage in front where a rank has several: 2F0.");
}

}  // namespace

int reduce_count(const Schedule& schedule, StageId stage) {
  const Synchronisation& all = schedule.synchronisation;
  if (!all.mirrored() || !schedule.graph.contains(stage)) {
    return 0;
  }
  return all.shard_states == ShardStates::gradients
             ? schedule.microbatches
             : all.buckets.at(static_cast<std::size_t>(stage.value));
}

bool has_only(const Row& row, StageId stage) {
  return std::ranges::all_of(
      row, [&](const Action& action) { return action.stage == stage; });
}

std::string to_text(const Action& action, bool with_stage) {
  std::string text = with_stage ? std::to_string(action.stage.value) : "";
  const OpTraits& kind = traits(action.op);
  text += kind.letters;
  return kind.index == IndexOf::nothing ? text
                                        : text + std::to_string(action.index);
}

std::string to_text(const Row& row) {
  return to_text(row, !row.empty() && !has_only(row, row.front().stage));
}

std::string to_text(const Row& row, Rank rank) {
  return to_text(row, !has_only(row, StageId{rank.value}));
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (int rank = 0; const Row& row : schedule.rows) {
    const std::string words = to_text(row, Rank{rank});
    text += "rank " + std::to_string(rank) + ":";
    text += words.empty() ? "\n" : " " + words + "\n";
    ++rank;
  }
  return text;
}

Row parse_row(std::string_view text, StageId stage) {
  Row row;
  while (!text.empty()) {
    const std::string_view word = take_until(' ', text);
    if (!word.empty()) {
      row.push_back(parse_action(word, stage));
    }
  }
  return row;
}

Schedule parse_schedule(std::string_view text) {
  if (text.empty()) {
    fail("the schedule is empty",
         "Write one line per rank, in order: 'rank 0: F0 B0'.");
  }
  Schedule schedule;
  int stages = 1;
  while (!text.empty()) {
    std::string_view line = take_until('\n', text);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    const int rank = static_cast<int>(schedule.rows.size());
    const std::string start = "rank " + std::to_string(rank) + ":";
    if (!line.starts_with(start)) {
      fail("'" + std::string(line) + "' is not the row of rank " +
               std::to_string(rank),
           "Write one line per rank, in order: '" + start + " F0 B0'.");
    }
    line.remove_prefix(start.size());
    schedule.rows.push_back(parse_row(line, StageId{rank}));
    for (const Action& action : schedule.rows.back()) {
      stages = std::max(stages, action.stage.value + 1);
      if (traits(action.op).index == IndexOf::microbatch) {
        schedule.microbatches =
            std::max(schedule.microbatches, action.index + 1);
      }
    }
  }
  schedule.graph = StageGraph(stages);
  return schedule;
}

}  // namespace cleave
