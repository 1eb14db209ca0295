// The program with ranks that are processes.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "cleave/atomic_file.h"
#include "cleave/cli/launch/status_page.h"
#include "program.h"

namespace cleave {
namespace {

using Clock = std::chrono::steady_clock;

class RanksProgram : public Program {
 protected:
  // What training with these options leaves, merged.
  std::string merged(const std::string& options) const {
    const Outcome trained =
        cleave("train " + small_config() +
               " --parallel.stages 2 --parallel.microbatches "
               "4 --output.overwrite " +
               options);
    EXPECT_EQ(trained.code, 0) << trained.output;
    const Outcome joined = cleave("merge " + path("run"));
    EXPECT_EQ(joined.code, 0) << joined.output;
    return read_file(path("run") + "/model.safetensors");
  }
};

TEST_F(RanksProgram, processes_train_what_threads_train) {
  const std::string expected = merged("--devices.use cpu:2");
  EXPECT_EQ(merged("--devices.use mpi:2"), expected);
}

TEST_F(RanksProgram, replicas_and_shards_train_too) {
  for (const char* options : {"--parallel.replicas 2",
                              "--parallel.replicas 2 --parallel.shard_states "
                              "optimizer --train.clip 1",
                              "--parallel.replicas 2 --parallel.shard_states "
                              "gradients"}) {
    const Outcome outcome =
        cleave("train " + small_config() +
               " --devices.use mpi:4 --output.overwrite --json " + options);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("test_accuracy"), std::string::npos);
  }
}

TEST_F(RanksProgram, says_which_samples_go_to_which_replica) {
  const Outcome outcome =
      cleave("train " + small_config() +
             " --devices.use cpu:2 --parallel.stages 1 --parallel.replicas 2 "
             "--parallel.microbatches 2 --train.batch 12 --train.steps 1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* line :
       {"replica 0 | samples 0 to 5 of every batch, in 2 microbatches",
        "replica 1 | samples 6 to 11 of every batch, in 2 microbatches"}) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << outcome.output;
  }
}

TEST_F(RanksProgram, says_who_is_where) {
  const Outcome outcome =
      cleave("train " + small_config() + " --devices.use mpi:3");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* words : {"rank", "host", "address", "mpi:2"}) {
    EXPECT_NE(outcome.output.find(words), std::string::npos) << words;
  }
}

TEST_F(RanksProgram, wrong_numbers_of_ranks_are_refused) {
  expect_refused("train " + small_config() + " --devices.use mpi:0",
                 {"'mpi:0' names no devices", "mpi:N"});
  expect_refused("train " + small_config() + " --devices.use mpi",
                 {"no launcher started this process"});
  expect_refused(
      "train " + small_config() + " --devices.use mpi:2 --parallel.replicas 3",
      {"cannot put 3 replicas on 2 devices"});
}

TEST_F(RanksProgram, one_of_them_says_what_is_wrong) {
  const Outcome outcome = shell(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 mpiexec -n 3 " CLEAVE_PROGRAM
      " train " +
      small_config() + " --devices.use mpi:2");
  EXPECT_NE(outcome.code, 0);
  const std::string problem = "devices.use is mpi:2, but mpirun started 3";
  const size_t first = outcome.output.find(problem);
  ASSERT_NE(first, std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find(problem, first + 1), std::string::npos)
      << outcome.output;
}

// Two configurations in one job.
TEST_F(RanksProgram, ranks_that_were_started_differently_refuse) {
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 mpiexec -n 1 " CLEAVE_PROGRAM
      " train " +
      small_config() + " : -n 1 " CLEAVE_PROGRAM " train " + small_config() +
      " --train.lr 0.5";
  const Outcome outcome = shell(command);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.output.find("different configurations"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("lr = 0.5"), std::string::npos)
      << outcome.output;
  EXPECT_FALSE(fs::exists(path("run")));
}

// ---- ranks that are lost ----------------------------------------------------

// A run in the background, whose output can be read while it goes on.
class LongRun {
 public:
  // `environment`: "NAME=value ", to be set for it.
  LongRun(const std::string& arguments,
          std::string log,
          const std::string& environment = "")
      : log_(std::move(log)), child_(fork()) {
    if (child_ == 0) {
      const std::string command = environment + "exec " + CLEAVE_PROGRAM + " " +
                                  arguments + " > " + log_ + " 2>&1";
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
  }
  ~LongRun() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }
  LongRun(const LongRun&) = delete;
  LongRun& operator=(const LongRun&) = delete;

  void interrupt() { kill(child_, SIGINT); }
  void end_hard() { kill(child_, SIGKILL); }

  std::string output() const {
    std::ifstream log(log_);
    return {std::istreambuf_iterator<char>(log), {}};
  }

  // Waits for the text; false when it does not come within a minute.
  bool says(const std::string& text) const {
    for (int i = 0; i < 600; ++i) {
      if (fs::exists(log_) && output().find(text) != std::string::npos) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  // The processes of the ranks, from the table at the top of its output.
  std::map<int, pid_t> ranks() const {
    std::map<int, pid_t> found;
    std::istringstream lines(output());
    std::string line;
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with("rank  host")) << line;
    while (std::getline(lines, line) && !line.empty()) {
      std::istringstream words(line);
      int rank = 0;
      std::string host;
      std::string address;
      pid_t process = 0;
      words >> rank >> host >> address >> process;
      std::error_code unknown;
      const fs::path program = fs::read_symlink(
          "/proc/" + std::to_string(process) + "/exe", unknown);
      EXPECT_EQ(program, fs::path(CLEAVE_PROGRAM)) << line;
      if (program == fs::path(CLEAVE_PROGRAM)) {  // no other process is killed
        found[rank] = process;
      }
    }
    return found;
  }

  // Its exit code; -1 when it does not end in time.
  int ends_within(std::chrono::seconds time) {
    const Clock::time_point end = Clock::now() + time;
    while (Clock::now() < end) {
      int status = 0;
      if (waitpid(child_, &status, WNOHANG) == child_) {
        child_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return -1;
  }

 private:
  std::string log_;
  pid_t child_;
};

bool is_alive(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(status, text);
  return !text.empty() && text.find(") Z ") == std::string::npos;
}

void expect_all_gone(const std::map<int, pid_t>& ranks) {
  for (int i = 0; i < 100; ++i) {
    if (std::ranges::none_of(
            ranks, [](const auto& rank) { return is_alive(rank.second); })) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (const auto& [rank, process] : ranks) {
    EXPECT_FALSE(is_alive(process)) << "rank " << rank;
  }
}

// A job whose ranks can be caught at what they do.
class WatchedRun : public LongRun {
 public:
  // `folder`: for its temporary files, and no others.
  WatchedRun(const std::string& arguments, const std::string& folder, int ranks)
      : LongRun(arguments, folder + "/log", "TMPDIR=" + folder + " "),
        folder_(folder),
        count_(ranks) {}

  // Stops the rank while it does that; 0 when it does not within a minute, or
  // ends before.
  pid_t caught(int rank, const std::string& activity) {
    const Clock::time_point end = Clock::now() + std::chrono::minutes(1);
    pid_t process = 0;
    while (Clock::now() < end) {
      if (process == 0) {
        process = process_of(rank);
        continue;
      }
      if (!doing(rank).ends_with(activity)) {
        if (state_of(process) == '\0') {
          return 0;
        }
        continue;
      }
      kill(process, SIGSTOP);
      while (state_of(process) != 'T' && state_of(process) != '\0') {
      }
      if (doing(rank).ends_with(activity)) {
        return process;
      }
      kill(process, SIGCONT);
    }
    return 0;
  }

  // The ranks that run now.
  std::map<int, pid_t> processes() const {
    std::map<int, pid_t> found;
    for (int rank = 0; rank < count_; ++rank) {
      if (const pid_t process = process_of(rank); process != 0) {
        found[rank] = process;
      }
    }
    return found;
  }

 private:
  std::string doing(int rank) {
    if (!page_) {
      for (const auto& entry : fs::directory_iterator(folder_)) {
        const std::string name = entry.path().filename();
        if (name.starts_with("cleave-") && name.size() == 13 &&
            fs::file_size(entry) > 0) {
          page_ = std::make_unique<StatusPage>(entry.path(), 0, count_);
        }
      }
    }
    if (page_) {
      for (const StatusPage::Lost& line : page_->lost()) {
        if (line.rank == rank) {
          return line.doing;
        }
      }
    }
    return "";
  }

  static char state_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    std::getline(file, text);
    const std::size_t name = text.rfind(") ");
    return name == std::string::npos ? '\0' : text[name + 2];
  }

  // Of this job only: it has this job's folder in its environment.
  pid_t process_of(int rank) const {
    const std::string own = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
    const std::string job = "TMPDIR=" + folder_;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::error_code unknown;
      if (fs::read_symlink(entry.path() / "exe", unknown) !=
          fs::path(CLEAVE_PROGRAM)) {
        continue;
      }
      std::ifstream file(entry.path() / "environ");
      const std::string all{std::istreambuf_iterator<char>(file), {}};
      const std::string words = '\0' + all;
      if (words.find('\0' + own + '\0') != std::string::npos &&
          words.find('\0' + job + '\0') != std::string::npos) {
        return std::stoi(entry.path().filename());
      }
    }
    return 0;
  }

  std::string folder_;
  int count_;
  std::unique_ptr<StatusPage> page_;
};

// A job of which one rank was caught at a activity.
struct Caught {
  std::unique_ptr<WatchedRun> run;
  pid_t process = 0;  // stopped; 0: not caught
};

// Saving is short, so that it may be missed: then once more.
Caught caught_at(const std::string& activity,
                 int rank,
                 int ranks,
                 const std::string& arguments,
                 const std::string& folder) {
  const std::string length = activity == "save"
                                 ? " --model.width 512 --train.epochs 1"
                                 : " --train.epochs 100000";
  Caught caught;
  for (int trial = 0; trial < 10 && caught.process == 0; ++trial) {
    const std::string own = folder + "/" + std::to_string(trial);
    fs::create_directories(own);
    caught.run = std::make_unique<WatchedRun>(
        arguments + " --output.overwrite" + length, own, ranks);
    caught.process = caught.run->caught(rank, activity);
  }
  return caught;
}

// All activities once; more with CLEAVE_KILLS. The rank is drawn.
TEST_F(RanksProgram, a_killed_rank_ends_the_job_and_is_named) {
  const std::vector<std::string> activities{
      "start", "forward", "backward", "update", "save"};
  const char* const more = std::getenv("CLEAVE_KILLS");
  const int kills =
      more != nullptr ? std::atoi(more) : static_cast<int>(activities.size());
  constexpr int kRanks = 3;
  std::mt19937 random(7);
  for (int i = 0; i < kills; ++i) {
    const std::string& activity = activities[i % activities.size()];
    const int victim = static_cast<int>(random() % kRanks);
    const auto [run, process] =
        caught_at(activity,
                  victim,
                  kRanks,
                  "train " + small_config() +
                      " --devices.use mpi:3 --parallel.stages 3 "
                      "--parallel.schedule 1f1b",
                  path("kill" + std::to_string(i)));
    ASSERT_NE(process, 0) << activity << " of rank " << victim << run->output();
    const std::map<int, pid_t> ranks = run->processes();
    kill(process, SIGKILL);
    EXPECT_EQ(run->ends_within(std::chrono::seconds(5)), 75)
        << activity << ": " << run->output().substr(0, 2000);
    const std::string output = run->output();
    const std::size_t named = output.find("rank " + std::to_string(victim) +
                                          " of this machine was lost in: ");
    ASSERT_NE(named, std::string::npos) << activity << ": " << output;
    EXPECT_NE(output.find(activity, named), std::string::npos) << output;
    expect_all_gone(ranks);
  }
}

// In the middle of a step; with CLEAVE_KILLS also at the others.
TEST_F(RanksProgram, a_stopped_rank_is_named_when_its_time_is_over) {
  const std::vector<std::string> activities{
      "backward", "start", "forward", "update", "save"};
  const char* const more = std::getenv("CLEAVE_KILLS");
  const int stops = more != nullptr ? std::atoi(more) : 1;
  constexpr int kRanks = 2;
  for (int i = 0; i < stops; ++i) {
    const std::string& activity = activities[i % activities.size()];
    const int victim = (i + 1) % kRanks;
    const auto [run, process] =
        caught_at(activity,
                  victim,
                  kRanks,
                  "train " + small_config() +
                      " --devices.use mpi:2 --devices.patience 2 "
                      "--parallel.stages 2 --parallel.schedule 1f1b",
                  path("stop" + std::to_string(i)));
    ASSERT_NE(process, 0) << activity << run->output();
    const std::map<int, pid_t> ranks = run->processes();
    EXPECT_EQ(run->ends_within(std::chrono::seconds(20)), 75)
        << activity << ": " << run->output().substr(0, 2000);
    const std::string output = run->output();
    EXPECT_NE(output.find("rank " + std::to_string(victim)), std::string::npos)
        << activity << ": " << output;
    if (activity == "backward") {
      EXPECT_NE(output.find("waited 2.00 s for"), std::string::npos) << output;
      EXPECT_NE(output.find("microbatch"), std::string::npos) << output;
    }
    expect_all_gone(ranks);
  }
}

TEST_F(RanksProgram, a_killed_merge_leaves_nothing_half_done) {
  ASSERT_EQ(cleave("train " + small_config() + " --devices.use mpi:2").code, 0);
  const std::string file = path("run") + "/model.safetensors";
  ASSERT_EQ(cleave("merge " + path("run")).code, 0);
  const std::string whole = read_file(file);
  std::mt19937 random(7);
  for (int i = 0; i < 5; ++i) {
    fs::remove(file);
    LongRun merge("merge " + path("run"), path("log"));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    merge.end_hard();
    merge.ends_within(std::chrono::seconds(5));
    EXPECT_TRUE(!fs::exists(file) || read_file(file) == whole);
  }
  EXPECT_EQ(cleave("merge " + path("run")).code, 0);
  EXPECT_EQ(read_file(file), whole);
}

TEST_F(RanksProgram, an_interrupted_job_keeps_what_it_has) {
  LongRun run(
      "train " + small_config() + " --devices.use mpi:2 --train.epochs 100000",
      path("log"));
  ASSERT_TRUE(run.says("step 3")) << run.output();
  const std::map<int, pid_t> ranks = run.ranks();
  run.interrupt();
  EXPECT_EQ(run.ends_within(std::chrono::seconds(20)), 1) << run.output();
  EXPECT_NE(run.output().find("interrupted after step"), std::string::npos);
  EXPECT_EQ(cleave("merge " + path("run")).code, 0);
  expect_all_gone(ranks);
}

}  // namespace
}  // namespace cleave
