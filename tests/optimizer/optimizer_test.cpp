#include "cleave/optimizer/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/error.h"

namespace cleave {
namespace {

// Parameters called "0", "1", and so on.
std::vector<Parameter> named(const std::vector<at::Tensor>& tensors) {
  NamedTensors all;
  for (const at::Tensor& tensor : tensors) {
    all.emplace_back(std::to_string(all.size()), tensor);
  }
  return whole_parameters(all);
}

struct Pair {
  std::vector<at::Tensor> ours;
  std::vector<at::Tensor> theirs;
};

Pair equal_parameters() {
  torch::manual_seed(1);
  Pair pair;
  for (const std::int64_t size : {1, 7, 33, 500}) {
    pair.ours.push_back(torch::randn({size}).requires_grad_());
    pair.theirs.push_back(pair.ours.back().detach().clone().requires_grad_());
  }
  return pair;
}

// Ten steps of ours beside ten of torch::optim's, on the same gradients.
void expect_close_to(torch::optim::Optimizer& reference,
                     Optimizer& optimizer,
                     Pair& pair,
                     double learning_rate) {
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < pair.ours.size(); ++i) {
      pair.ours[i].mutable_grad() = torch::randn_like(pair.ours[i]);
      pair.theirs[i].mutable_grad() = pair.ours[i].grad().clone();
    }
    optimizer.step(learning_rate);
    reference.step();
  }
  for (size_t i = 0; i < pair.ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(pair.ours[i], pair.theirs[i], 1e-5, 1e-6));
  }
}

// What a user writes for an optimizer of one's own.
class SignMomentum : public Optimizer {
 public:
  explicit SignMomentum(const std::vector<Parameter>& parameters)
      : parameters_(parameters) {
    for (const auto& [name, value, whole] : parameters) {
      momenta_.emplace_back(name + "/momentum", torch::zeros_like(value));
    }
  }

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& value = parameters_[i].value;
      if (value.grad().defined()) {
        const at::Tensor& momentum = momenta_[i].second;
        momentum.mul_(0.9).add_(value.grad(), 0.1);
        value.sub_(learning_rate * momentum.sign());
      }
    }
  }

  NamedTensors get() const override { return momenta_; }

 private:
  std::vector<Parameter> parameters_;
  NamedTensors momenta_;
};

std::unique_ptr<Optimizer> sign_momentum(
    const std::vector<Parameter>& parameters) {
  return std::make_unique<SignMomentum>(parameters);
}

std::vector<MakeOptimizer> all_kinds() {
  const std::vector<ParameterGroup> groups{
      {.pattern = "?", .most_dimensions = 1, .weight_decay = 0.3, .rate = 0.5}};
  return {AdamW{},
          AdamW{.groups = groups},
          Sgd{},
          Sgd{.momentum = 0},
          Sgd{.weight_decay = 0.1, .nesterov = true, .groups = groups},
          sign_momentum};
}

TEST(Optimizer, adamw_does_what_libtorch_s_adamw_does) {
  Pair pair = equal_parameters();
  torch::optim::AdamW reference(
      pair.theirs, torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  const auto optimizer = AdamW{.weight_decay = 0.1}(named(pair.ours));
  expect_close_to(reference, *optimizer, pair, 0.01);
}

// Whoever keeps copies of parameters sees it by that.
TEST(Optimizer, an_update_raises_the_version_of_what_it_changes) {
  for (const MakeOptimizer& make : all_kinds()) {
    Pair pair = equal_parameters();
    const auto optimizer = make(named(pair.ours));
    pair.ours[0].mutable_grad() = torch::ones_like(pair.ours[0]);
    const auto changed = pair.ours[0]._version();
    const auto same = pair.ours[1]._version();
    optimizer->step(0.1);
    EXPECT_GT(pair.ours[0]._version(), changed);
    EXPECT_EQ(pair.ours[1]._version(), same);
  }
}

TEST(Optimizer, sgd_does_what_libtorch_s_sgd_does) {
  for (const double momentum : {0.0, 0.9}) {
    Pair pair = equal_parameters();
    torch::optim::SGD reference(
        pair.theirs,
        torch::optim::SGDOptions(0.1).momentum(momentum).weight_decay(0.01));
    const auto optimizer =
        Sgd{.momentum = momentum, .weight_decay = 0.01}(named(pair.ours));
    expect_close_to(reference, *optimizer, pair, 0.1);
  }
}

TEST(Optimizer, a_parameter_without_gradient_is_left_alone) {
  for (const MakeOptimizer& make : all_kinds()) {
    at::Tensor moved = torch::ones({3}).requires_grad_();
    const at::Tensor still = torch::ones({3}).requires_grad_();
    const auto optimizer = make(named({moved, still}));
    moved.mutable_grad() = torch::ones({3});
    optimizer->step(0.1);
    EXPECT_FALSE(torch::equal(moved, torch::ones({3})));
    EXPECT_TRUE(torch::equal(still, torch::ones({3})));
  }
}

TEST(Optimizer, types_may_be_mixed) {
  at::Tensor narrow = torch::ones({3}).requires_grad_();
  at::Tensor wide = torch::ones({3}, torch::kDouble).requires_grad_();
  const auto optimizer = AdamW{}(named({narrow, wide}));
  narrow.mutable_grad() = torch::ones_like(narrow);
  wide.mutable_grad() = torch::ones_like(wide);
  optimizer->step(0.1);
  EXPECT_LT(narrow[0].item<double>(), 1);
  EXPECT_LT(wide[0].item<double>(), 1);
}

// By gradients that depend on the number of the step alone.
void take_step(Optimizer& optimizer,
               std::vector<at::Tensor>& values,
               int step) {
  torch::manual_seed(step);
  for (size_t i = 0; i < values.size(); ++i) {
    // The first has no gradient in some steps.
    values[i].mutable_grad() =
        i == 0 && step % 3 != 2 ? at::Tensor() : torch::randn_like(values[i]);
  }
  optimizer.step(0.01 * step);
}

// Copies, as a file has them.
NamedTensors copies_of(const NamedTensors& states) {
  NamedTensors copies;
  for (const auto& [name, tensor] : states) {
    copies.emplace_back(name, tensor.clone());
  }
  return copies;
}

TEST(Optimizer, goes_on_with_the_same_bits_from_its_states) {
  for (const MakeOptimizer& make : all_kinds()) {
    auto [ours, theirs] = equal_parameters();
    ours.push_back(torch::ones({3, 4}).requires_grad_());
    theirs.push_back(torch::ones({3, 4}).requires_grad_());
    const auto one_go = make(named(ours));
    const auto before = make(named(theirs));
    for (int step = 1; step <= 3; ++step) {
      take_step(*one_go, ours, step);
      take_step(*before, theirs, step);
    }
    const auto after = make(named(theirs));
    after->set(copies_of(before->get()));
    for (int step = 4; step <= 6; ++step) {
      take_step(*one_go, ours, step);
      take_step(*after, theirs, step);
    }
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << i;
    }
  }
}

TEST(Optimizer, states_have_names) {
  const std::vector<Parameter> parameters =
      whole_parameters({{"hidden.weight", torch::ones({2, 3})}});
  const auto names_of = [&](const MakeOptimizer& make) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : make(parameters)->get()) {
      names.push_back(name);
    }
    return names;
  };
  EXPECT_EQ(names_of(AdamW{}),
            (std::vector<std::string>{"hidden.weight/exp_avg",
                                      "hidden.weight/exp_avg_sq",
                                      "hidden.weight/step"}));
  EXPECT_EQ(names_of(Sgd{}),
            std::vector<std::string>{"hidden.weight/momentum"});
  EXPECT_TRUE(names_of(Sgd{.momentum = 0}).empty());
  EXPECT_EQ(AdamW{}(parameters)->bytes().value, 2 * 6 * 4 + 4);
}

TEST(Optimizer, states_of_another_optimizer_are_refused_and_listed) {
  const auto optimizer = Sgd{}(named({torch::ones({2}), torch::ones({3})}));
  try {
    optimizer->set(
        {{"0/exp_avg", torch::ones({2})}, {"1/momentum", torch::ones({4})}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(),
              "these are not the states of this optimizer; missing: 0/momentum"
              "; of another shape or type: 1/momentum; unknown: 0/exp_avg");
  }
  EXPECT_TRUE(torch::equal(optimizer->get()[1].second, torch::zeros({3})));
}

// One step from ones by a gradient of zero: what is left is decay.
std::vector<double> decayed(const std::vector<ParameterGroup>& groups) {
  NamedTensors tensors{{"embedding.weight", torch::ones({2, 2})},
                       {"out.weight", torch::ones({2, 2})},
                       {"out.bias", torch::ones({2})}};
  for (auto& [name, tensor] : tensors) {
    tensor.mutable_grad() = torch::zeros_like(tensor);
  }
  // A section of a matrix is still of a matrix.
  std::vector<Parameter> parameters = whole_parameters(tensors);
  at::Tensor section = tensors[1].second.view({-1}).narrow(0, 0, 2);
  section.mutable_grad() = torch::zeros({2});
  parameters[1].value = section;
  AdamW{.weight_decay = 0.5, .groups = groups}(parameters)->step(0.5);
  std::vector<double> first;
  for (const auto& [name, tensor] : tensors) {
    first.push_back(tensor.flatten()[0].item<double>());
  }
  return first;
}

TEST(ParameterGroups, the_first_that_fits_says_decay_and_rate) {
  using Values = std::vector<double>;
  EXPECT_EQ(decayed({}), (Values{0.75, 0.75, 0.75}));
  EXPECT_EQ(decayed({{.most_dimensions = 1, .weight_decay = 0}}),
            (Values{0.75, 0.75, 1}));
  EXPECT_EQ(decayed({{.pattern = "out.*", .rate = 0.5},
                     {.pattern = "*", .weight_decay = 0}}),
            (Values{1, 0.875, 0.875}));
  EXPECT_EQ(decayed({{.pattern = "*.weigh?", .rate = 2}}),
            (Values{0.5, 0.5, 0.75}));
  EXPECT_EQ(decayed({{.pattern = "*t*.*e*", .rate = 2}}),
            (Values{0.75, 0.5, 0.75}));
  EXPECT_EQ(decayed({{.pattern = "out.*s", .rate = 2}}),
            (Values{0.75, 0.75, 0.5}));
  EXPECT_EQ(decayed({{.pattern = "*a*a*a*a*a*a*a*a*a*a*a*a*b", .rate = 2}}),
            (Values{0.75, 0.75, 0.75}));
  EXPECT_EQ(decayed({{.pattern = "out", .rate = 2}}),
            (Values{0.75, 0.75, 0.75}));
}

// Keeps half a value of each, from its first step on.
class Lazy : public Optimizer {
 public:
  explicit Lazy(const std::vector<Parameter>& parameters)
      : values_(parameters.front().value.numel()) {}
  void step(double) override { states_ = {{"h", torch::zeros(values_ / 2)}}; }
  NamedTensors get() const override { return states_; }

 private:
  std::int64_t values_;
  NamedTensors states_;
};

TEST(Optimizer, the_planner_knows_what_each_keeps) {
  EXPECT_EQ(state_copies(AdamW{}), 2);
  EXPECT_EQ(state_copies(Sgd{}), 1);
  EXPECT_EQ(state_copies(Sgd{.momentum = 0}), 0);
  EXPECT_EQ(state_copies([](const auto& parameters) {
              return std::make_unique<Lazy>(parameters);
            }),
            1);
}

}  // namespace
}  // namespace cleave
