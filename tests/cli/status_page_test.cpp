#include "cleave/cli/launch/status_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace cleave {
namespace {

TEST(StatusPage, tells_who_ended_without_a_word) {
  const StatusPage launcher(3);
  StatusPage first(launcher.file(), 0, 3);
  StatusPage second(launcher.file(), 1, 3);
  EXPECT_TRUE(launcher.lost().empty());  // no rank has begun
  first.write("start");
  second.write("start");
  second.write("stage 1, microbatch 3, backward");
  EXPECT_FALSE(launcher.has_ended());
  first.mark_ended();
  EXPECT_TRUE(launcher.has_ended());
  const auto lost = launcher.lost();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].rank, 1);
  EXPECT_EQ(lost[0].process, getpid());
  EXPECT_EQ(lost[0].doing, "stage 1, microbatch 3, backward");
}

TEST(StatusPage, long_texts_are_cut) {
  const StatusPage launcher(1);
  StatusPage(launcher.file(), 0, 1).write(std::string(1000, 'x'));
  EXPECT_EQ(launcher.lost().at(0).doing, std::string(103, 'x'));
}

TEST(StatusPage, without_its_file_nothing_is_written) {
  StatusPage rank("/nowhere/at/all", 0, 2);
  rank.write("start");
  rank.mark_ended();
  EXPECT_TRUE(rank.lost().empty());
}

TEST(StatusPage, its_file_goes_with_it) {
  std::filesystem::path file;
  {
    const StatusPage launcher(2);
    file = launcher.file();
    EXPECT_TRUE(std::filesystem::exists(file));
    // Another number of ranks is another job's page.
    StatusPage other(file, 0, 5);
    other.write("start");
    EXPECT_TRUE(launcher.lost().empty());
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace cleave
