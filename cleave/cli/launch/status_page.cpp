#include "cleave/cli/launch/status_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "cleave/error.h"

namespace cleave {

// Two texts, of which one is complete at any moment.
struct StatusPage::Line {
  std::atomic<int> process;
  std::atomic<int> ended;
  std::atomic<int> current;  // 1 or 2: which text counts; 0: none yet
  std::array<std::array<char, 104>, 2> texts;
};

StatusPage::StatusPage(int ranks) : owns_file_(true), ranks_(ranks) {
  std::string name =
      (std::filesystem::temp_directory_path() / "cleave-XXXXXX").string();
  const int descriptor = mkstemp(name.data());
  const auto size = static_cast<off_t>(sizeof(Line)) * ranks;
  if (descriptor < 0 || ftruncate(descriptor, size) != 0) {
    fail("cannot make a file in " +
             std::filesystem::temp_directory_path().string(),
         "Make room there, or set TMPDIR to another folder.");
  }
  file_ = name;
  map(descriptor);
}

StatusPage::StatusPage(const std::filesystem::path& file, int rank, int ranks)
    : file_(file), rank_(rank), ranks_(ranks) {
  std::error_code unknown;
  const auto size = std::filesystem::file_size(file, unknown);
  const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0 || unknown || size != sizeof(Line) * ranks) {
    if (descriptor >= 0) {
      close(descriptor);
    }
    return;  // of another machine, for example: no launcher here reads it
  }
  map(descriptor);
}

void StatusPage::map(int descriptor) {
  void* const page = mmap(nullptr,
                          sizeof(Line) * ranks_,
                          PROT_READ | PROT_WRITE,
                          MAP_SHARED,
                          descriptor,
                          0);
  close(descriptor);
  lines_ = page == MAP_FAILED ? nullptr : static_cast<Line*>(page);
}

StatusPage::~StatusPage() {
  if (lines_ != nullptr) {
    munmap(lines_, sizeof(Line) * ranks_);
  }
  if (owns_file_) {
    std::error_code gone;
    std::filesystem::remove(file_, gone);
  }
}

void StatusPage::write(const std::string& text) {
  if (lines_ == nullptr) {
    return;
  }
  Line& line = lines_[rank_];
  const int next = line.current.load() == 1 ? 2 : 1;
  std::array<char, 104>& to = line.texts[next - 1];
  const std::size_t length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.data(), length, to.data());
  to[length] = '\0';
  line.process.store(getpid());
  line.current.store(next);
}

void StatusPage::mark_ended() {
  if (lines_ != nullptr) {
    lines_[rank_].ended.store(1);
  }
}

bool StatusPage::has_ended() const {
  for (int rank = 0; lines_ != nullptr && rank < ranks_; ++rank) {
    if (lines_[rank].ended.load() != 0) {
      return true;
    }
  }
  return false;
}

std::vector<StatusPage::Lost> StatusPage::lost() const {
  std::vector<Lost> found;
  for (int rank = 0; lines_ != nullptr && rank < ranks_; ++rank) {
    const Line& line = lines_[rank];
    const int current = line.current.load();
    if (current != 0 && line.ended.load() == 0) {
      found.push_back(
          {rank, line.process.load(), line.texts[current - 1].data()});
    }
  }
  return found;
}

}  // namespace cleave
