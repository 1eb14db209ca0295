#include "cleave/comm/thread_world.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr Tag kTag{Channel::values, 0, {3}};

TEST(ThreadWorldTest, a_message_is_handed_over_by_pointer) {
  ThreadWorld world(2, Seconds{10});
  const at::Tensor sent = torch::ones({1000});
  const void* memory = sent.data_ptr();
  world.connect({0})->send({1}, kTag, {sent, at::Tensor()});
  const Message received = world.connect({1})->receive({0}, kTag);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].data_ptr(), memory);
  EXPECT_FALSE(received[1].defined());
}

TEST(ThreadWorldTest, messages_with_one_tag_keep_their_order) {
  ThreadWorld world(2, Seconds{10});
  const auto sender = world.connect({0});
  const auto receiver = world.connect({1});
  for (int i = 0; i < 5; ++i) {
    sender->send({1}, kTag, {torch::tensor(i)});
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(receiver->receive({0}, kTag)[0].item<int>(), i);
  }
}

TEST(ThreadWorldTest, tags_and_senders_are_told_apart) {
  ThreadWorld world(3, Seconds{10});
  const Tag other{Channel::gradients, 0, {3}};
  world.connect({0})->send({2}, kTag, {torch::tensor(1)});
  world.connect({0})->send({2}, other, {torch::tensor(2)});
  world.connect({1})->send({2}, kTag, {torch::tensor(3)});
  const auto receiver = world.connect({2});
  EXPECT_EQ(receiver->receive({1}, kTag)[0].item<int>(), 3);
  EXPECT_EQ(receiver->receive({0}, other)[0].item<int>(), 2);
  EXPECT_EQ(receiver->receive({0}, kTag)[0].item<int>(), 1);
}

TEST(ThreadWorldTest, a_rank_waits_for_what_is_on_its_way) {
  ThreadWorld world(2, Seconds{60});
  const std::jthread sender(
      [&] { world.connect({0})->send({1}, kTag, {torch::tensor(7)}); });
  EXPECT_EQ(world.connect({1})->receive({0}, kTag)[0].item<int>(), 7);
}

TEST(ThreadWorldTest, a_message_that_never_comes_is_an_error_not_a_hang) {
  ThreadWorld world(2, Seconds{0.01});
  try {
    world.connect({1})->receive({0}, kTag);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "rank 1 waited 10.0 ms for the values of microbatch 3 from "
              "rank 0");
  }
}

TEST(ThreadWorldTest, an_abort_ends_every_wait_and_the_first_reason_is_kept) {
  ThreadWorld world(3, Seconds{60});
  int woken = 0;
  {
    std::atomic<int> count = 0;
    const auto wait = [&](int rank) {
      EXPECT_THROW(world.connect({rank})->receive({0}, kTag), Error);
      ++count;
    };
    std::jthread first(wait, 1);
    std::jthread second(wait, 2);
    world.abort(std::make_exception_ptr(Error("first", "")));
    world.abort(std::make_exception_ptr(Error("second", "")));
    first.join();
    second.join();
    woken = count;
  }
  EXPECT_EQ(woken, 2);
  try {
    std::rethrow_exception(world.failure());
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "first");
  }
}

}  // namespace
}  // namespace cleave
