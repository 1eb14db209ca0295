#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cleave {

// A page of memory that a launcher shares with the ranks it started on this
// machine: every rank writes down what it is about to do, so that the launcher
// can print it when the rank is lost. A killed process loses nothing it wrote.
class StatusPage {
 public:
  // The launcher's: a new page in the folder for temporary files. It is gone
  // when this is.
  explicit StatusPage(int ranks);

  // A rank's: its own line of the page.
  StatusPage(const std::filesystem::path& file, int rank, int ranks);

  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  const std::filesystem::path& file() const { return file_; }

  // Replaces what the own line says. Text beyond 100 bytes is lost.
  void write(const std::string& text);

  // The rank is going to end, well or with a report of its own. Also called by
  // signal handlers.
  void mark_ended();

  // A rank that began and never marked its end.
  struct Lost {
    int rank = 0;
    int process = 0;
    std::string doing;
  };
  std::vector<Lost> lost() const;

  // Whether some rank marked its end.
  bool has_ended() const;

 private:
  struct Line;

  void map(int descriptor);

  std::filesystem::path file_;
  bool owns_file_ = false;
  int rank_ = 0;
  int ranks_ = 0;
  Line* lines_ = nullptr;  // one per rank
};

}  // namespace cleave
