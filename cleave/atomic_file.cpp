#include "cleave/atomic_file.h"

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "cleave/error.h"

namespace cleave {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  return folder.empty() ? "." : folder;
}

// A name that no other process on this machine and no other object in this one
// uses; O_EXCL catches the rest.
std::filesystem::path temporary_name(const std::filesystem::path& file) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path name = file;
  name +=
      "." + std::to_string(getpid()) + "-" + std::to_string(++count) + ".tmp";
  return name;
}

int create(const std::filesystem::path& file) {
  // The mode lets the user's umask decide who may read it, as for any file.
  return open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

// Makes the new name itself durable.
int sync_folder(const std::filesystem::path& folder) {
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return errno;
  }
  const int problem = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  // Some file systems have no such thing; there is nothing more to be done.
  return problem == EINVAL || problem == ENOTSUP ? 0 : problem;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)) {
  do {
    temporary_ = temporary_name(file_);
    descriptor_ = create(temporary_);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) {
    fail_with(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
  if (!committed_) {
    unlink(temporary_.c_str());
  }
}

void AtomicFile::fail_with(int problem) const {
  fail("cannot write " + file_.string() + ": " +
           std::generic_category().message(problem),
       "Check that the folder exists, that you may write there and that the "
       "disk has room.");
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      fail_with(written == 0 ? ENOSPC : errno);
    }
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0) {
    fail_with(errno);
  }
  // A network file system may report only now that a write failed.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    fail_with(errno);
  }
  if (rename(temporary_.c_str(), file_.c_str()) != 0) {
    fail_with(errno);
  }
  committed_ = true;
  if (const int problem = sync_folder(folder_of(file_)); problem != 0) {
    fail_with(problem);
  }
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream input(file, std::ios::binary);
  std::ostringstream text;
  if (input.peek() != std::ifstream::traits_type::eof()) {
    text << input.rdbuf();
  }
  if (!input.is_open() || input.bad() || !text) {
    fail("cannot read " + file.string(),
         "Check that the file exists and may be read.");
  }
  return text.str();
}

void write_file_atomically(const std::filesystem::path& file,
                           std::string_view content) {
  AtomicFile out(file);
  out.write(content);
  out.commit();
}

void remove_tree(const std::filesystem::path& path) {
  constexpr int kMostOpen = 16;  // folders at a time
  const auto remove = [](const char* name, const struct stat*, int, FTW*) {
    return std::remove(name);
  };
  if (nftw(path.c_str(), remove, kMostOpen, FTW_DEPTH | FTW_PHYS) != 0 &&
      errno != ENOENT) {
    fail("cannot remove " + path.string() + ": " +
             std::generic_category().message(errno),
         "Remove it by hand, or choose another output directory.");
  }
}

}  // namespace cleave
