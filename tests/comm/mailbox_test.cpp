// Waits for messages, with and without spinning before threads sleep.
#include "cleave/comm/mailbox.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <thread>

namespace cleave {
namespace {

constexpr Rank kSender{1};
constexpr Tag kWanted{Channel::values, 0, {3}};
constexpr Tag kUnwanted{Channel::values, 0, {4}};
constexpr Seconds kLong{60};

bool never() {
  return false;
}

class MailboxTest : public testing::TestWithParam<int> {
 protected:
  Mailbox mailbox_{SpinWait(GetParam())};
};

TEST_P(MailboxTest, who_waits_gets_the_message_it_waits_for) {
  constexpr int kMessages = 200;
  std::jthread sender([&] {
    for (int i = 0; i < kMessages; ++i) {
      mailbox_.put(kSender, kUnwanted, {at::tensor(-1)});
      mailbox_.put(kSender, kWanted, {at::tensor(i)});
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    const auto message = mailbox_.take(kSender, kWanted, kLong, never);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->at(0).item<int>(), i);
  }
}

TEST_P(MailboxTest, another_message_does_not_end_the_wait) {
  mailbox_.put(kSender, kUnwanted, {});
  EXPECT_FALSE(mailbox_.take(kSender, kWanted, Seconds{0.01}, never));
  EXPECT_TRUE(mailbox_.has(kSender, kUnwanted));
}

TEST_P(MailboxTest, who_is_told_to_stop_does) {
  std::atomic<bool> stopped = false;
  std::jthread stopper([&] {
    stopped = true;
    mailbox_.wake();
  });
  EXPECT_FALSE(
      mailbox_.take(kSender, kWanted, kLong, [&] { return stopped.load(); }));
}

INSTANTIATE_TEST_SUITE_P(Lookouts, MailboxTest, testing::Values(1, 2));

TEST(SpinWait, ends_with_what_is_seen_or_with_the_moment) {
  const SpinWait spin_wait(2);
  int looks = 0;
  spin_wait.until([&] { return ++looks == 3; });
  EXPECT_LE(looks, 3);
  spin_wait.until([] { return false; });
}

TEST(SpinWait, nobody_looks_where_threads_share_cores) {
  const int many = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  for (const SpinWait& spin_wait : {SpinWait(), SpinWait(1), SpinWait(many)}) {
    spin_wait.until([] {
      ADD_FAILURE() << "looked";
      return true;
    });
  }
}

}  // namespace
}  // namespace cleave
