#include "cleave/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <string>

#include "cleave/error.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

// Lets no file grow beyond `bytes`: to a writer, a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(AtomicFile, content_appears_with_the_commit_and_not_before) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  {
    AtomicFile out(folder / "file");
    out.write("new ");
    out.write("words");
    EXPECT_EQ(content_of(folder / "file"), "old");
    out.commit();
    EXPECT_EQ(content_of(folder / "file"), "new words");
  }
  EXPECT_EQ(content_of(folder / "file"), "new words");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, without_a_commit_nothing_is_left) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  {
    AtomicFile out(folder / "file");
    out.write("new");
    EXPECT_EQ(folder.count(), 2);
  }
  EXPECT_EQ(content_of(folder / "file"), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, a_whole_file_is_written_at_once) {
  const TemporaryFolder folder;
  const std::string content(100'000, 'x');
  write_file_atomically(folder / "file", content);
  EXPECT_EQ(content_of(folder / "file"), content);
  write_file_atomically(folder / "file", "");
  EXPECT_EQ(content_of(folder / "file"), "");
}

TEST(AtomicFile, a_leftover_of_a_killed_writer_is_no_obstacle) {
  const TemporaryFolder folder;
  const std::string pid = std::to_string(getpid());
  for (int i = 0; i < 100; ++i) {
    put(folder / ("file." + pid + "-" + std::to_string(i) + ".tmp"), "dead");
  }
  write_file_atomically(folder / "file", "alive");
  EXPECT_EQ(content_of(folder / "file"), "alive");
  EXPECT_EQ(folder.count(), 101);
}

TEST(AtomicFile, the_umask_decides_who_may_read_it) {
  const TemporaryFolder folder;
  const mode_t before = umask(027);
  write_file_atomically(folder / "file", "text");
  umask(before);
  EXPECT_EQ(std::filesystem::status(folder / "file").permissions(),
            std::filesystem::perms(0640));
}

TEST(AtomicFile, a_full_disk_leaves_the_old_file) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  {
    const FullDisk disk(1000);
    EXPECT_THROW(write_file_atomically(folder / "file", std::string(5000, 'x')),
                 Error);
  }
  EXPECT_EQ(content_of(folder / "file"), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, a_folder_that_is_a_file_or_missing_is_named) {
  const TemporaryFolder folder;
  put(folder / "file", "old");
  for (const char* parent : {"file", "missing"}) {
    const std::filesystem::path target = folder / parent / "new";
    try {
      write_file_atomically(target, "text");
      FAIL() << target;
    } catch (const Error& error) {
      EXPECT_NE(error.problem().find(target.string()), std::string::npos);
    }
  }
  EXPECT_EQ(content_of(folder / "file"), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFile, a_name_that_cannot_be_taken_leaves_no_trace) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "name");
  EXPECT_THROW(write_file_atomically(folder / "name", "text"), Error);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "name"));
  EXPECT_EQ(folder.count(), 1);
}

TEST(RemoveTree, removes_a_file_or_a_folder_and_no_more) {
  const TemporaryFolder folder;
  put(folder / "file", "text");
  std::filesystem::create_directories(folder / "tree" / "branch");
  put(folder / "tree" / "branch" / "leaf", "text");
  put(folder / "kept", "text");
  std::filesystem::create_symlink(folder / "kept", folder / "tree" / "link");
  remove_tree(folder / "file");
  remove_tree(folder / "tree");
  remove_tree(folder / "never was");
  EXPECT_EQ(content_of(folder / "kept"), "text");
  EXPECT_EQ(folder.count(), 1);
}

}  // namespace
}  // namespace cleave
