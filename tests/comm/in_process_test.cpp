#include "cleave/comm/in_process.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr Tag kTag{Channel::values, 0, {3}};

TEST(InProcess, a_message_is_handed_over_by_pointer) {
  InProcessHub hub(2, Seconds{10});
  const at::Tensor sent = torch::ones({1000});
  const void* memory = sent.data_ptr();
  hub.connect({0})->send({1}, kTag, {sent, at::Tensor()});
  const Message received = hub.connect({1})->receive({0}, kTag);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].data_ptr(), memory);
  EXPECT_FALSE(received[1].defined());
}

TEST(InProcess, messages_with_one_tag_keep_their_order) {
  InProcessHub hub(2, Seconds{10});
  const auto sender = hub.connect({0});
  const auto receiver = hub.connect({1});
  for (int i = 0; i < 5; ++i) {
    sender->send({1}, kTag, {torch::tensor(i)});
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(receiver->receive({0}, kTag)[0].item<int>(), i);
  }
}

TEST(InProcess, tags_and_senders_are_told_apart) {
  InProcessHub hub(3, Seconds{10});
  const Tag other{Channel::gradients, 0, {3}};
  hub.connect({0})->send({2}, kTag, {torch::tensor(1)});
  hub.connect({0})->send({2}, other, {torch::tensor(2)});
  hub.connect({1})->send({2}, kTag, {torch::tensor(3)});
  const auto receiver = hub.connect({2});
  EXPECT_EQ(receiver->receive({1}, kTag)[0].item<int>(), 3);
  EXPECT_EQ(receiver->receive({0}, other)[0].item<int>(), 2);
  EXPECT_EQ(receiver->receive({0}, kTag)[0].item<int>(), 1);
}

TEST(InProcess, a_rank_waits_for_what_is_on_its_way) {
  InProcessHub hub(2, Seconds{60});
  const std::jthread sender(
      [&] { hub.connect({0})->send({1}, kTag, {torch::tensor(7)}); });
  EXPECT_EQ(hub.connect({1})->receive({0}, kTag)[0].item<int>(), 7);
}

TEST(InProcess, a_message_that_never_comes_is_an_error_not_a_hang) {
  InProcessHub hub(2, Seconds{0.01});
  try {
    hub.connect({1})->receive({0}, kTag);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "rank 1 waited 10.0 ms for the values of microbatch 3 from "
              "rank 0");
  }
}

TEST(InProcess, an_abort_ends_every_wait_and_the_first_reason_is_kept) {
  InProcessHub hub(3, Seconds{60});
  int woken = 0;
  {
    std::atomic<int> count = 0;
    const auto wait = [&](int rank) {
      EXPECT_THROW(hub.connect({rank})->receive({0}, kTag), Error);
      ++count;
    };
    std::jthread first(wait, 1);
    std::jthread second(wait, 2);
    hub.abort(std::make_exception_ptr(Error("first", "")));
    hub.abort(std::make_exception_ptr(Error("second", "")));
    first.join();
    second.join();
    woken = count;
  }
  EXPECT_EQ(woken, 2);
  try {
    std::rethrow_exception(hub.failure());
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "first");
  }
}

}  // namespace
}  // namespace cleave
