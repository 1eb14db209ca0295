#include "cleave/plan/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "cleave/error.h"

namespace cleave {
namespace {

[[noreturn]] void fail_writing(const std::filesystem::path& file) {
  const std::string reason = std::generic_category().message(errno);
  fail("cannot write " + file.string() + ": " + reason,
       "Check that its folder exists, can be written and has space left.");
}

// Returns false, with errno set, when something did not reach the disk.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    text.remove_prefix(written < 0 ? 0 : written);
  }
  return ::fsync(file) == 0;
}

}  // namespace

std::string read_text(const std::filesystem::path& file) {
  std::ifstream input(file, std::ios::binary);
  std::ostringstream text;
  text << input.rdbuf();
  if (!input || !text) {
    fail("cannot read " + file.string(),
         "Check that the file exists and may be read.");
  }
  return text.str();
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  const std::filesystem::path sibling = file.string() + ".tmp";
  const int descriptor =
      ::open(sibling.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    fail_writing(file);
  }
  const bool written = write_all(descriptor, text);
  const bool closed = ::close(descriptor) == 0;
  if (!written || !closed || ::rename(sibling.c_str(), file.c_str()) != 0) {
    const int reason = errno;
    ::unlink(sibling.c_str());
    errno = reason;
    fail_writing(file);
  }
}

}  // namespace cleave
