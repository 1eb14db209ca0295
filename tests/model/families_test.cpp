#include "cleave/model/families/families.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/error.h"
#include "cleave/model/network.h"

namespace cleave {
namespace {

FamilyOptions options_for(std::string_view family) {
  if (family == "gpt") {
    return {.width = 8, .depth = 2, .heads = 2, .context = 6, .vocabulary = 9};
  }
  return {.input = {1, 8, 8}, .outputs = 3, .width = 4, .depth = 2};
}

at::Tensor input_for(std::string_view family) {
  return family == "gpt" ? torch::randint(9, {5, 6})
                         : torch::randn({5, 1, 8, 8});
}

TEST(Families, each_makes_a_network_that_answers) {
  for (const Family& family : families()) {
    const Model model = make_model(family.name, options_for(family.name));
    EXPECT_EQ(model.name(), family.name);
    const at::Tensor result = model.build()->forward(input_for(family.name));
    const std::vector<std::int64_t> expected =
        family.name == "gpt" ? std::vector<std::int64_t>{5, 6, 9}
                             : std::vector<std::int64_t>{5, 3};
    EXPECT_EQ(result.sizes().vec(), expected) << family.name;
  }
}

TEST(Families, the_defaults_make_a_network_too) {
  for (const Family& family : families()) {
    const Model model = make_model(family.name, {.input = {1, 8, 8}});
    EXPECT_GT(model.size(), 3) << family.name;
  }
}

TEST(Families, an_unknown_name_or_a_misfit_is_refused) {
  EXPECT_THROW(make_model("rnn", {}), Error);
  EXPECT_THROW(make_model("convnet", {.input = {64}}), Error);
  EXPECT_THROW(make_model("gpt", {.width = 10, .heads = 4}), Error);
}

TEST(Families, a_sequence_longer_than_the_context_is_told) {
  const auto network = make_model("gpt", options_for("gpt")).build();
  try {
    network->forward(torch::randint(9, {1, 7}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "layer 'embedding' failed on inputs [1, 7]: a sequence of 7 "
              "tokens is longer than the context of 6");
  }
}

TEST(Families, a_head_may_be_cut_into_parts_that_score_the_same) {
  FamilyOptions options = options_for("gpt");
  options.tied = false;
  const auto whole = make_model("gpt", options).build();
  options.head_parts = 4;  // does not divide the nine tokens
  const Model model = make_model("gpt", options);
  const auto parts = model.build();
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, tensor] : whole->state()) {
    weights[name] = tensor;
  }
  std::vector<at::Tensor> slices;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parts->state()) {
    if (name.starts_with("head.part")) {
      slices.push_back(tensor);
    } else {
      at::Tensor(tensor).copy_(weights.at(name));
    }
  }
  EXPECT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[0].size(0), 3);
  EXPECT_EQ(slices[3].size(0), 2);
  std::int64_t first = 0;
  for (at::Tensor& slice : slices) {
    slice.copy_(weights.at("head.weight").narrow(0, first, slice.size(0)));
    first += slice.size(0);
  }
  const at::Tensor tokens = input_for("gpt");
  EXPECT_TRUE(torch::allclose(parts->forward(tokens), whole->forward(tokens)));
}

TEST(Families, a_head_in_parts_cannot_be_tied_or_finer_than_the_tokens) {
  FamilyOptions options = options_for("gpt");
  options.head_parts = 2;
  EXPECT_THROW(make_model("gpt", options), Error);
  options.tied = false;
  options.head_parts = 10;
  EXPECT_THROW(make_model("gpt", options), Error);
}

}  // namespace
}  // namespace cleave
