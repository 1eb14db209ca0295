#pragma once

#include <filesystem>

namespace cleave {

// Where a run keeps its files. Knows their names; writes none of them.
class RunFolder {
 public:
  // Makes the folder for a new run. A folder that holds a run already is an
  // Error, unless `overwrite`: then that run's files, and no others, are
  // removed.
  static RunFolder create(const std::filesystem::path& path, bool overwrite);

  // Throws what create() would throw, and changes nothing.
  static void check_free(const std::filesystem::path& path, bool overwrite);

  // The folder of a run that exists. Throws Error when there is none.
  static RunFolder open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path plan() const { return path_ / "plan.json"; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  std::filesystem::path schedule() const { return path_ / "schedule.svg"; }
  std::filesystem::path trace() const { return path_ / "trace.json"; }
  std::filesystem::path timeline() const { return path_ / "timeline.html"; }
  std::filesystem::path stages() const { return path_ / "stages"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }

 private:
  explicit RunFolder(std::filesystem::path path);

  std::filesystem::path path_;
};

}  // namespace cleave
