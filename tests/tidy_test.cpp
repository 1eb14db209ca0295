// Rules for the tree that only its text can show.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace cleave {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = CLEAVE_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Under a folder of the project, as paths from its root.
std::vector<fs::path> files_under(const std::string& folder,
                                  const std::set<std::string>& extensions) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    if (extensions.contains(entry.path().extension().string())) {
      files.push_back(fs::relative(entry.path(), kRoot));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The matches of the form's first group.
std::vector<std::string> found_in(const std::string& text,
                                  const std::regex& form) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), form), end;
       match != end;
       ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

// Of types that are defined outside of all others: these begin their line, and
// the declaration of a type that is defined elsewhere has no brace.
std::vector<std::string> types_in(const fs::path& file) {
  static const std::regex form(
      R"(\n(?:class|struct|enum class) (\w+)(?: final)?(?: : [^;{}()=]+)? \{)");
  return found_in(text_of(kRoot / file), form);
}

TEST(Tidy, no_two_headers_have_types_of_the_same_name) {
  std::map<std::string, fs::path> home_of;
  for (const fs::path& header : files_under("cleave", {".h"})) {
    for (const std::string& name : types_in(header)) {
      const auto [home, is_new] = home_of.try_emplace(name, header);
      EXPECT_TRUE(is_new) << name << " is in " << home->second << " and in "
                          << header;
    }
  }
  EXPECT_GT(home_of.size(), 100u);
  for (const fs::path& source : files_under("cleave", {".cpp"})) {
    for (const std::string& name : types_in(source)) {
      const auto home = home_of.find(name);
      EXPECT_TRUE(home == home_of.end())
          << name << " in " << source << " is also in " << home->second;
    }
  }
}

TEST(Tidy, every_header_is_included_by_a_file_that_is_not_its_source) {
  const std::regex form(R"(\n#include "([^"]+)\")");
  std::map<std::string, std::set<fs::path>> users;
  for (const std::string folder : {"cleave", "tests", "examples", "bench"}) {
    for (const fs::path& file : files_under(folder, {".h", ".cpp"})) {
      // The first line may be an include.
      for (const std::string& header :
           found_in("\n" + text_of(kRoot / file), form)) {
        users[header].insert(file);
      }
    }
  }
  for (const fs::path& header : files_under("cleave", {".h"})) {
    std::set<fs::path>& found = users[header.string()];
    found.erase(fs::path(header).replace_extension(".cpp"));
    EXPECT_TRUE(header == "cleave/cleave.h" || !found.empty()) << header;
  }
}

// cmake/package.cmake installs these headers and no others.
TEST(Tidy, a_program_needs_at_most_thirty_headers) {
  constexpr std::size_t kMostHeaders = 30;
  const std::regex form(R"(\n#include "(cleave/[^"]+)\")");
  std::set<std::string> known{"cleave/cleave.h"};
  std::vector<std::string> unread{"cleave/cleave.h"};
  while (!unread.empty()) {
    const std::string text = text_of(kRoot / unread.back());
    unread.pop_back();
    for (const std::string& header : found_in(text, form)) {
      if (known.insert(header).second) {
        unread.push_back(header);
      }
    }
  }
  EXPECT_GT(known.size(), 20u);
  EXPECT_LE(known.size(), kMostHeaders);
}

// A folder's own CMakeLists.txt names it, or that of a folder above.
bool is_built(const fs::path& source) {
  for (fs::path folder = source.parent_path();; folder = folder.parent_path()) {
    const fs::path list = kRoot / folder / "CMakeLists.txt";
    if (fs::exists(list)) {
      const std::string name = source.lexically_relative(folder).string();
      const std::regex form(
          "[\\s(]" + std::regex_replace(name, std::regex(R"([.])"), R"(\.)") +
          "[\\s)]");
      if (std::regex_search(text_of(list), form)) {
        return true;
      }
    }
    if (folder.empty()) {
      return false;
    }
  }
}

TEST(Tidy, every_source_is_built) {
  for (const fs::path& source : files_under("cleave", {".cpp"})) {
    EXPECT_TRUE(is_built(source)) << source;
  }
  for (const fs::path& source : files_under("tests", {".cpp"})) {
    // Programs of several folders share these.
    const std::string text = source.string();
    EXPECT_TRUE(is_built(source) || text == "tests/mpi_ranks.cpp" ||
                text.starts_with("tests/fuzz/"))
        << source;
  }
}

TEST(Tidy, every_folder_says_what_happens_in_it) {
  for (const auto& entry : fs::directory_iterator(kRoot / "cleave")) {
    if (entry.is_directory()) {
      const std::string text = text_of(entry.path() / "README.md");
      EXPECT_TRUE(
          text.starts_with("# " + entry.path().filename().string() + "/: "))
          << entry.path();
      EXPECT_NE(text.find("Start with"), std::string::npos) << entry.path();
    }
  }
}

// Functions of more than 40 lines are clang-tidy's.
TEST(Tidy, files_are_short) {
  constexpr std::ptrdiff_t kMostLines = 400;
  for (const fs::path& file : files_under("cleave", {".h", ".cpp"})) {
    const std::string text = text_of(kRoot / file);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMostLines) << file;
  }
}

}  // namespace
}  // namespace cleave
