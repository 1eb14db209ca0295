#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace cleave {

// A file that appears under its name whole or not at all, whenever the process
// or the machine may stop. The bytes go to a sibling whose name ends in ".tmp";
// commit() makes them durable and gives them the name. Without a commit the
// sibling is removed and what had the name before is untouched. Not
// thread-safe; several objects may write the same name, and the last commit
// stays.
class AtomicFile {
 public:
  // Throws Error when no file can be made beside `file`.
  explicit AtomicFile(std::filesystem::path file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws Error when the bytes cannot be written, as on a full disk.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  // Call once, after the last write. Throws Error where the bytes cannot be
  // made durable or the name cannot be taken.
  void commit();

 private:
  [[noreturn]] void fail_with(int problem) const;

  std::filesystem::path file_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

// The whole file. Throws Error that names it where it cannot be read.
std::string read_file(const std::filesystem::path& file);

// The whole file at once.
void write_file_atomically(const std::filesystem::path& file,
                           std::string_view content);

// A file, or a folder with all that is in it; nothing where there is none.
// Throws Error that names what cannot be removed. What std::filesystem has for
// this crashes where a libtorch brings its own of that name.
void remove_tree(const std::filesystem::path& path);

}  // namespace cleave
