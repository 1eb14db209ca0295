#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "cleave/event.h"

namespace cleave {

// One event as one JSON object without a line break. "event" names it
// (run_started, step_done, evaluated, run_ended); the other fields are the
// event's members, with durations in seconds (..._seconds) and memory as whole
// bytes (..._bytes). A member without a value is left out. JSON has no word
// for numbers that are not finite: they are the strings "nan", "inf", "-inf".
std::string to_json_line(const Event& event);

// Writes every event as one line of a file. A line is on its way to the disk
// when on() returns, so a reader can follow the file while it grows.
class JsonlSink : public EventSink {
 public:
  enum class Mode { truncate, append };

  // Throws Error when the file cannot be opened.
  JsonlSink(std::filesystem::path file, Mode mode);

  // Throws Error when the line cannot be written: a full disk is not silent.
  void on(const Event& event) override;

 private:
  std::filesystem::path file_;
  std::ofstream out_;
};

}  // namespace cleave
