#include "cleave/report/progress_bar.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>

#include "cleave/report/text.h"

namespace cleave {
namespace {

constexpr int kDefaultCells = 10;
constexpr Seconds kLongestClock{3600e6};  // what fits neither line nor life

// A cell's looks, from empty to full.
constexpr std::array<std::string_view, 9> kBlocks{
    " ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
constexpr std::array<std::string_view, 11> kDigits{
    " ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "#"};

std::string bar(double share,
                int cells,
                std::span<const std::string_view> look) {
  const int steps_per_cell = static_cast<int>(look.size()) - 1;
  const int filled = static_cast<int>(share * cells * steps_per_cell);
  std::string text;
  for (int cell = 0; cell < cells; ++cell) {
    const int level = filled - cell * steps_per_cell;
    text += look[std::clamp(level, 0, steps_per_cell)];
  }
  return text;
}

// Steps per second, or seconds per step where a step takes more than one.
std::string rate_text(double rate, const std::string& unit) {
  if (rate <= 0) {
    return "?" + unit + "/s";
  }
  const bool slow = rate < 1;
  std::string number = decimal(slow ? 1 / rate : rate, 2);
  number.insert(0, number.size() < 5 ? 5 - number.size() : 0, ' ');
  return number + (slow ? "s/" + unit : unit + "/s");
}

}  // namespace

std::string progress_line(const Progress& progress, int width, bool ascii) {
  const auto& [label, done, total, elapsed, unit, note] = progress;
  const double rate =
      elapsed.value > 0 ? static_cast<double>(done) / elapsed.value : 0;
  const std::string before = label.empty() ? "" : label + ": ";
  const std::string after =
      ", " + rate_text(rate, unit) + (note.empty() ? "" : ", " + note) + "]";
  const std::string counted = std::to_string(done);

  std::string line;
  if (total <= 0 || done > total) {
    line = before + counted + unit + " [" + clock_text(elapsed) + after;
  } else {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    std::string percent = decimal(100 * share, 0);
    percent.insert(0, 3 - percent.size(), ' ');
    const std::string left =
        rate > 0 ? clock_text({static_cast<double>(total - done) / rate}) : "?";
    const std::string head = before + percent + "%|";
    const std::string tail = "| " + counted + "/" + std::to_string(total) +
                             " [" + clock_text(elapsed) + "<" + left + after;
    const int room = std::max(1, width - columns(head) - columns(tail));
    const int cells = width > 0 ? room : kDefaultCells;
    line = head +
           (ascii ? bar(share, cells, kDigits) : bar(share, cells, kBlocks)) +
           tail;
  }
  return width > 0 ? std::string(first_columns(line, width)) : line;
}

std::string clock_text(Seconds seconds) {
  const auto whole = static_cast<long long>(
      std::clamp(seconds.value, 0.0, kLongestClock.value));
  const long long hours = whole / 3600;
  const long long minutes = whole / 60 % 60;
  std::array<char, 40> text{};
  if (hours > 0) {
    std::snprintf(text.data(),
                  text.size(),
                  "%lld:%02lld:%02lld",
                  hours,
                  minutes,
                  whole % 60);
  } else {
    std::snprintf(
        text.data(), text.size(), "%02lld:%02lld", minutes, whole % 60);
  }
  return text.data();
}

}  // namespace cleave
