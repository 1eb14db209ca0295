#include "cleave/model/intercept/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <thread>

namespace cleave {
namespace {

// Draws in every way a module may: initialisation, the kinds of dropout,
// attention's dropout, noise of its own.
at::Tensor draw_everything(std::uint64_t key) {
  const RandomStream stream(key);
  const at::Tensor ones = torch::ones({4, 4});
  const at::Tensor images = torch::ones({4, 4, 1, 1});
  const at::Tensor heads = torch::ones({1, 1, 4, 4});
  return torch::cat(
      {torch::nn::Linear(4, 4)->weight,
       torch::nn::Dropout(0.5)(ones),
       torch::nn::Dropout2d(0.5)(images).view({4, 4}),
       torch::nn::AlphaDropout(0.5)(ones),
       torch::rand({4, 4}),
       torch::randn_like(ones),
       torch::bernoulli(ones * 0.5),
       torch::normal(0.0, 1.0, {4, 4}),
       torch::multinomial(ones, 4).to(torch::kFloat),
       torch::stack({torch::randperm(4), torch::randint(9, {4})})
           .to(torch::kFloat),
       at::scaled_dot_product_attention(heads, heads, heads, {}, 0.5)
           .view({4, 4})});
}

TEST(RandomStream, equal_keys_draw_equal_numbers) {
  EXPECT_TRUE(torch::equal(draw_everything(1), draw_everything(1)));
  EXPECT_FALSE(torch::equal(draw_everything(1), draw_everything(2)));
}

TEST(RandomStream, threads_do_not_disturb_each_other) {
  const at::Tensor expected = draw_everything(7);
  std::vector<int> differences(4);
  {
    std::vector<std::jthread> threads;
    for (int& count : differences) {
      threads.emplace_back([&count, &expected] {
        for (int i = 0; i < 50; ++i) {
          count += torch::equal(draw_everything(7), expected) ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(differences, std::vector<int>(4));
}

TEST(RandomStream, outside_it_libtorch_draws_as_ever) {
  torch::manual_seed(3);
  const at::Tensor expected = torch::rand({5});
  torch::manual_seed(3);
  draw_everything(1);
  EXPECT_TRUE(torch::equal(torch::rand({5}), expected));
}

TEST(RandomStream, a_generator_that_is_given_is_used) {
  at::Generator first = at::detail::createCPUGenerator(5);
  at::Generator second = at::detail::createCPUGenerator(5);
  const RandomStream stream(1);
  EXPECT_TRUE(torch::equal(torch::empty({5}).uniform_(0, 1, first),
                           torch::empty({5}).uniform_(0, 1, second)));
}

TEST(RandomStream, streams_nest) {
  at::Tensor alone;
  {
    const RandomStream outer(1);
    alone = torch::rand({6});
  }
  const RandomStream outer(1);
  const at::Tensor before = torch::rand({3});
  {
    const RandomStream inner(2);
    torch::rand({3});
  }
  EXPECT_TRUE(torch::equal(torch::cat({before, torch::rand({3})}), alone));
}

TEST(RandomKey, it_depends_on_everything_it_is_given) {
  std::set<std::uint64_t> keys;
  for (const char* layer : {"", "a", "b", "ab", "ba"}) {
    for (const std::uint64_t seed : {0, 1}) {
      keys.insert(random_key(seed, layer));
      for (const std::int64_t step : {0, 1}) {
        for (const int microbatch : {0, 1}) {
          keys.insert(random_key(Moment{seed, step, {microbatch}}, layer));
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), 5u * 2 * (1 + 4));
}

TEST(RandomKey, it_is_the_same_on_every_machine) {
  EXPECT_EQ(random_key(1, "hidden.0"), random_key(1, "hidden.0"));
  EXPECT_EQ(random_key(0, ""), 0xe220a8397b1dcdafU);  // splitmix64's first
}

}  // namespace
}  // namespace cleave
