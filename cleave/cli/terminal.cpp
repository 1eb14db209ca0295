#include "cleave/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>

namespace cleave {
namespace {

constexpr int kUsualWidth = 80;
constexpr int kMostColumns = 120;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// The first of these that is set decides the character set.
bool writes_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view value = environment(name);
    if (!value.empty()) {
      return value.find("UTF-8") != std::string_view::npos ||
             value.find("utf8") != std::string_view::npos ||
             value.find("utf-8") != std::string_view::npos;
    }
  }
  return true;
}

}  // namespace

int console_width() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
  return known && size.ws_col > 0 ? std::min<int>(size.ws_col, kMostColumns)
                                  : kUsualWidth;
}

ConsoleOptions console_options() {
  const bool terminal =
      isatty(STDERR_FILENO) == 1 && environment("TERM") != "dumb";
  return {
      .terminal = terminal,
      .width = console_width(),
      .colour = terminal && environment("NO_COLOR").empty(),
      .ascii = !writes_utf8(),
  };
}

Seconds now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(time).count()};
}

}  // namespace cleave
