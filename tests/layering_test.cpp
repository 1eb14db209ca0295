// Folders are the flow: a folder includes only those before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace cleave {
namespace {

namespace fs = std::filesystem;

// In the order of docs/architecture.md.
constexpr std::array kFlow{"device",
                           "comm",
                           "model",
                           "stage",
                           "optimizer",
                           "data",
                           "schedule",
                           "plan",
                           "train",
                           "checkpoint",
                           "evaluate",
                           "report",
                           "cli"};

// Folders that must not see a tensor. What measures is in a folder of its own.
constexpr std::array kWithoutTorch{"schedule", "plan", "report"};
constexpr std::string_view kMeasuring = "plan/measure/";

int place_of(const std::string& folder) {
  const auto found = std::find(kFlow.begin(), kFlow.end(), folder);
  return found == kFlow.end() ? -1 : static_cast<int>(found - kFlow.begin());
}

struct Include {
  std::string from;  // "train/stage.cpp"
  std::string to;    // "cleave/model/loss.h", "torch/torch.h"
};

std::vector<Include> all_includes() {
  const fs::path root = fs::path(CLEAVE_SOURCE_DIR) / "cleave";
  const std::regex line_form(R"(^\s*#include\s*["<]([^">]+)[">])");
  std::vector<Include> includes;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp") {
      continue;
    }
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (std::regex_search(line, match, line_form)) {
        includes.push_back(
            {fs::relative(entry.path(), root).string(), match[1]});
      }
    }
  }
  return includes;
}

std::string first_folder(const std::string& path) {
  const size_t slash = path.find('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

TEST(Layering, a_folder_includes_only_folders_before_it) {
  const std::vector<Include> includes = all_includes();
  ASSERT_GT(includes.size(), 100u);
  for (const Include& include : includes) {
    if (!include.to.starts_with("cleave/") || include.from == "cleave.h") {
      continue;
    }
    const std::string to = first_folder(include.to.substr(7));
    const std::string from = first_folder(include.from);
    const int to_place = to.empty() ? -1 : place_of(to);
    EXPECT_TRUE(to.empty() || to_place >= 0) << include.to;
    EXPECT_LE(to_place, from.empty() ? -1 : place_of(from))
        << include.from << " includes " << include.to;
  }
}

TEST(Layering, the_vocabulary_and_the_planner_know_no_torch) {
  for (const Include& include : all_includes()) {
    const std::string from = first_folder(include.from);
    const bool bare =
        (from.empty() && include.from != "cleave.h") ||
        std::find(kWithoutTorch.begin(), kWithoutTorch.end(), from) !=
            kWithoutTorch.end();
    if (bare && !include.from.starts_with(kMeasuring)) {
      for (const char* prefix : {"torch/", "ATen/", "c10/"}) {
        EXPECT_FALSE(include.to.starts_with(prefix))
            << include.from << " includes " << include.to;
      }
    }
  }
}

TEST(Layering, evaluation_shares_no_code_with_training) {
  for (const Include& include : all_includes()) {
    if (first_folder(include.from) == "evaluate") {
      EXPECT_FALSE(include.to.starts_with("cleave/train/")) << include.from;
    }
  }
}

TEST(Layering, every_header_is_guarded) {
  const fs::path root = fs::path(CLEAVE_SOURCE_DIR) / "cleave";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".h") {
      std::ifstream file(entry.path());
      std::string first;
      std::getline(file, first);
      EXPECT_EQ(first, "#pragma once") << entry.path();
    }
  }
}

}  // namespace
}  // namespace cleave
