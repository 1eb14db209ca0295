#include <algorithm>

#include "cleave/cli/config/config.h"
#include "cleave/cli/config/config_value.h"
#include "cleave/cli/config/schema.h"
#include "cleave/schedule/generators/registry.h"

namespace cleave {
namespace {

constexpr std::size_t kTomlColumn = 32;
constexpr std::size_t kHelpColumn = 34;

// "samples in one step; at least 1", "how it learns: adamw, sgd". That most
// numbers cannot be negative goes without saying.
std::string description(const Key& key) {
  const Limits& limits = key.limits;
  std::string text(key.help);
  for (std::size_t i = 0; i < limits.words.size(); ++i) {
    text += i == 0 ? ": " : ", ";
    text += limits.words[i];
  }
  const std::string range = range_text(limits);
  return range.empty() || range == "at least 0" ? text : text + "; " + range;
}

// Text that goes on at `column`, or after a space where it is longer.
std::string up_to(std::size_t column, std::string text) {
  text.resize(std::max(column, text.size() + 1), ' ');
  return text;
}

// Calls `head` for each section and `row` for each of its keys.
template <class Head, class Row>
std::string by_section(Head head, Row row) {
  std::string text;
  for (const KeySection& section : config_sections()) {
    text += (text.empty() ? "" : "\n") + head(section);
    for (const Key& key : config_keys()) {
      text += key.section() == section.name ? row(key) : "";
    }
  }
  return text;
}

}  // namespace

std::string to_toml(const Config& config) {
  Config values = config;
  return by_section(
      [](const KeySection& section) {
        return up_to(kTomlColumn, "[" + std::string(section.name) + "]") +
               "# " + std::string(section.help) + "\n";
      },
      [&](const Key& key) {
        return up_to(
                   kTomlColumn,
                   std::string(key.name()) + " = " + toml_value(values, key)) +
               "# " + description(key) + "\n";
      });
}

std::string help_for_keys() {
  Config defaults;
  const std::string keys = by_section(
      [](const KeySection& section) {
        return "[" + std::string(section.name) + "] " +
               std::string(section.help) + "\n";
      },
      [&](const Key& key) {
        return up_to(kHelpColumn, "  --" + std::string(key.dotted)) +
               description(key) + " [" + toml_value(defaults, key) + "]\n";
      });
  std::string schedules = "\nSchedules\n";
  for (const ScheduleKind& kind : kSchedules) {
    schedules += up_to(kHelpColumn, "  " + std::string(kind.name)) +
                 std::string(kind.description) + "\n";
  }
  return keys + schedules;
}

std::string markdown_for_keys() {
  Config defaults;
  const std::string keys = by_section(
      [](const KeySection& section) {
        return "## [" + std::string(section.name) + "] " +
               std::string(section.help) +
               "\n\n| key | type | default | meaning |\n|---|---|---|---|\n";
      },
      [&](const Key& key) {
        return "| `" + std::string(key.name()) + "` | " + type_text(key) +
               " | `" + toml_value(defaults, key) + "` | " + description(key) +
               " |\n";
      });
  std::string schedules =
      "\n## The schedules\n\n| name | what it does |\n|---|---|\n";
  for (const ScheduleKind& kind : kSchedules) {
    schedules += "| `" + std::string(kind.name) + "` | " +
                 std::string(kind.description) + " |\n";
  }
  return keys + schedules;
}

}  // namespace cleave
