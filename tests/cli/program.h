#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

// The program as a user meets it: what it prints, what it leaves behind, and
// how it ends.
namespace cleave {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string output;  // of both streams
};

// Runs a shell command to its end.
inline Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> part{};
  while (const size_t size = fread(part.data(), 1, part.size(), pipe)) {
    outcome.output.append(part.data(), size);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

inline Outcome cleave(const std::string& arguments) {
  return shell(std::string(CLEAVE_PROGRAM) + " " + arguments);
}

class Program : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              ("cleave_program_" + std::string(test->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

  // A configuration that trains within a second.
  std::string small_config(const std::string& more = "") const {
    const std::string file = path("small.toml");
    std::ofstream(file) << "[model]\nfamily = \"mlp\"\nwidth = 16\ndepth = 2\n"
                           "[data]\nsamples = 256\ntest_samples = 64\n"
                           "[train]\nbatch = 32\nepochs = 2\n"
                           "[output]\ndirectory = \""
                        << path("run") << "\"\n"
                        << more;
    return file;
  }

  // Exit code 1 (or `code`), one line that starts with "cleave: " and holds
  // all of `words`, and no run folder.
  void expect_refused(const std::string& arguments,
                      const std::vector<std::string>& words,
                      int code = 1) const {
    const Outcome outcome = cleave(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.output;
    for (const std::string& word : words) {
      EXPECT_NE(outcome.output.find(word), std::string::npos)
          << arguments << '\n'
          << outcome.output;
    }
    EXPECT_FALSE(fs::exists(path("run"))) << arguments;
  }

  fs::path folder_;
};

}  // namespace cleave
