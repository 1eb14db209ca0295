// Backward in two parts: the bits of one whole backward.
#include "cleave/stage/stage.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "cleave/model/model.h"

namespace cleave {
namespace {

// x W, by an operation that knows nothing of queues.
struct ProductImpl : torch::nn::Module {
  ProductImpl(std::int64_t in, std::int64_t out)
      : weight(register_parameter("weight", torch::randn({in, out}))) {}
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight).tanh(); }
  at::Tensor weight;
};

// One matrix, used by a linear operation and by another one.
struct MixedImpl : torch::nn::Module {
  explicit MixedImpl(std::int64_t width)
      : weight(register_parameter("weight", torch::randn({width, width}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return torch::linear(x, weight).tanh() + x.matmul(weight) * 0.5;
  }
  at::Tensor weight;
};

// One matrix, used by two linear operations.
struct TwiceImpl : torch::nn::Module {
  explicit TwiceImpl(std::int64_t width)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    return linear(linear(x).tanh()).tanh();
  }
  torch::nn::Linear linear{nullptr};
};

// A product whose matrix is itself computed from two parameters.
struct LowRankImpl : torch::nn::Module {
  explicit LowRankImpl(std::int64_t width)
      : down(register_parameter("down", torch::randn({width, 2}))),
        up(register_parameter("up", torch::randn({2, width}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return torch::linear(x, down.matmul(up)).tanh();
  }
  at::Tensor down;
  at::Tensor up;
};

struct RecurrentImpl : torch::nn::Module {
  explicit RecurrentImpl(std::int64_t width)
      : lstm(register_module("lstm", torch::nn::LSTM(width, width))) {}
  at::Tensor forward(const at::Tensor& x) { return std::get<0>(lstm(x)); }
  torch::nn::LSTM lstm{nullptr};
};

// Few rows, each of them looked up many times.
struct LookupImpl : torch::nn::Module {
  LookupImpl(std::int64_t rows, std::int64_t width)
      : embedding(
            register_module("embedding", torch::nn::Embedding(rows, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor row = (x.detach().select(-1, 0).abs() * 100).to(at::kLong);
    return embedding(row.remainder(embedding->weight.size(0) - 1)) + x;
  }
  torch::nn::Embedding embedding{nullptr};
};

struct SplitCase {
  std::string name;
  std::function<Model()> make;
  std::vector<std::int64_t> input;
  bool waits = true;  // some matrix's gradient waits for W already in the
                      // first backward
};

void PrintTo(const SplitCase& split, std::ostream* out) {
  *out << split.name;
}

Model with_linears(const std::function<void(Model&)>& add_between) {
  Model model("split", 5);
  model.add<torch::nn::Linear>("first", 6, 6);
  add_between(model);
  model.add<torch::nn::Linear>("last", 6, 3);
  return model;
}

std::vector<SplitCase> split_cases() {
  return {
      {"linear", [] { return with_linears([](Model&) {}); }, {5, 6}},
      {"fused",
       [] {
         return fuse(with_linears(
             [](Model& model) { model.add<torch::nn::ReLU>("relu"); }));
       },
       {5, 6}},
      {"rows_of_rows", [] { return with_linears([](Model&) {}); }, {2, 4, 6}},
      {"norm",
       [] {
         return with_linears([](Model& model) {
           model.add<torch::nn::LayerNorm>("norm",
                                           torch::nn::LayerNormOptions({6}));
         });
       },
       {5, 6}},
      {"convolution",
       [] {
         Model model("split", 5);
         model.add<torch::nn::Conv2d>(
             "conv", torch::nn::Conv2dOptions(2, 4, 3).padding(1));
         model.add<torch::nn::BatchNorm2d>("norm", 4);
         model.add<torch::nn::Conv2d>(
             "wide",
             torch::nn::Conv2dOptions(4, 6, 3).stride(2).groups(2).bias(false));
         model.add<torch::nn::ConvTranspose2d>(
             "up", torch::nn::ConvTranspose2dOptions(6, 3, 2));
         return model;
       },
       {3, 2, 8, 8}},
      {"product",
       [] {
         return with_linears(
             [](Model& model) { model.add<ProductImpl>("product", 6, 6); });
       },
       {5, 6}},
      {"only_products",
       [] {
         Model model("split", 5);
         model.add<ProductImpl>("one", 6, 6);
         model.add<ProductImpl>("two", 6, 6);
         return model;
       },
       {5, 6},
       false},
      {"mixed",
       [] {
         return with_linears(
             [](Model& model) { model.add<MixedImpl>("mixed", 6); });
       },
       {5, 6},
       false},
      {"twice",
       [] {
         return with_linears(
             [](Model& model) { model.add<TwiceImpl>("twice", 6); });
       },
       {5, 6}},
      {"low_rank",
       [] {
         return with_linears(
             [](Model& model) { model.add<LowRankImpl>("low", 6); });
       },
       {5, 6}},
      {"recurrent",
       [] {
         return with_linears(
             [](Model& model) { model.add<RecurrentImpl>("lstm", 6); });
       },
       {4, 2, 6}},
      {"lookup",
       [] {
         return with_linears(
             [](Model& model) { model.add<LookupImpl>("lookup", 7, 6); });
       },
       {1500, 6}},
  };
}

class SplitBackward : public testing::TestWithParam<SplitCase> {};

constexpr int kSplitMicrobatches = 5;

struct StageRun {
  StageRun(const Model& model, const SplitCase& split)
      : stage(model, 0, model.size()) {
    torch::manual_seed(11);
    for (int m = 0; m < kSplitMicrobatches; ++m) {
      inputs.push_back(torch::randn(split.input));
      inputs.back().requires_grad_();
    }
  }

  void forward(int m) {
    const Values made =
        stage.forward(Microbatch{m}, {inputs[m]}, Moment{1, 1, {m}}, {});
    seeds.push_back((at::arange(made.at(0).numel(), at::kFloat) + m)
                        .sin()
                        .view_as(made.at(0)));
  }
  void backward(int m, const GradientFound& found = {}) {
    gradients.push_back(stage.backward(Microbatch{m}, {seeds[m]}, found).at(0));
  }
  void weights(int m, const GradientFound& found = {}) {
    stage.weights(Microbatch{m}, found);
  }

  at::Tensor parameter(const std::string& wanted) const {
    for (const auto& [name, parameter] : stage.network().trained_parameters()) {
      if (name == wanted) {
        return parameter;
      }
    }
    return {};
  }

  bool has_open_matrix() const {
    for (const auto& [name, parameter] : stage.network().trained_parameters()) {
      if (parameter.dim() > 1 && !parameter.grad().defined()) {
        return true;
      }
    }
    return false;
  }

  Stage stage;
  Values inputs;
  Values seeds;
  Values gradients;  // of the inputs
};

void expect_same_gradients(const StageRun& found, const StageRun& expected) {
  for (int m = 0; m < kSplitMicrobatches; ++m) {
    EXPECT_TRUE(torch::equal(found.gradients[m], expected.gradients[m])) << m;
  }
  const NamedTensors own = found.stage.network().trained_parameters();
  const NamedTensors whole = expected.stage.network().trained_parameters();
  ASSERT_EQ(own.size(), whole.size());
  for (size_t i = 0; i < own.size(); ++i) {
    ASSERT_TRUE(own[i].second.grad().defined()) << own[i].first;
    EXPECT_TRUE(torch::equal(own[i].second.grad(), whole[i].second.grad()))
        << own[i].first;
  }
}

TEST_P(SplitBackward, gradients_are_those_of_a_whole_backward) {
  const Model model = GetParam().make();
  StageRun whole(model, GetParam());
  whole.stage.begin(/*split=*/false);
  for (int m = 0; m < kSplitMicrobatches; ++m) {
    whole.forward(m);
    whole.backward(m);
  }

  StageRun split(model, GetParam());
  split.stage.begin(/*split=*/true);
  split.forward(0);
  split.forward(1);
  split.backward(0);
  EXPECT_EQ(split.has_open_matrix(), GetParam().waits);
  split.forward(2);
  split.backward(1);
  split.weights(0);
  split.forward(3);
  split.forward(4);
  split.backward(2);
  split.backward(3);
  split.weights(1);
  split.weights(2);
  split.backward(4);
  split.weights(3);
  split.weights(4);
  expect_same_gradients(split, whole);
}

// Also those that only a walk of the graph can split: in the second step, when
// the stage knows them, none has its gradient before W.
TEST_P(SplitBackward, every_matrix_that_can_wait_waits) {
  const Model model = GetParam().make();
  StageRun run(model, GetParam());
  for (int step = 0; step < 2; ++step) {
    for (const auto& [name, parameter] :
         run.stage.network().trained_parameters()) {
      at::Tensor(parameter).mutable_grad() = at::Tensor();
    }
    run.seeds.clear();
    run.stage.begin(/*split=*/true);
    run.forward(0);
    run.backward(0);
    for (const auto& [name, parameter] :
         run.stage.network().trained_parameters()) {
      const bool may_wait =
          parameter.dim() > 1 && name.find("mixed") == std::string::npos;
      if (step == 1 && may_wait) {
        EXPECT_FALSE(parameter.grad().defined()) << name;
      }
    }
    run.weights(0);
    for (const auto& [name, parameter] :
         run.stage.network().trained_parameters()) {
      EXPECT_TRUE(parameter.grad().defined()) << name;
    }
  }
}

// `found` is called once per parameter, with its final gradient.
TEST_P(SplitBackward, a_gradient_that_was_told_of_stays) {
  for (const bool split : {false, true}) {
    const Model model = GetParam().make();
    StageRun run(model, GetParam());
    run.stage.begin(split);
    std::vector<std::pair<at::Tensor, at::Tensor>> reported;
    const GradientFound found = [&](const at::Tensor& parameter) {
      reported.emplace_back(parameter, parameter.grad().clone());
    };
    for (int m = 0; m < 2; ++m) {
      run.forward(m);
      run.backward(m, m == 1 ? found : GradientFound{});
      EXPECT_EQ(reported.empty(), split || m == 0);
      run.weights(m, m == 1 ? found : GradientFound{});
    }
    run.forward(2);  // without `found`
    run.backward(2);
    run.weights(2);
    EXPECT_EQ(reported.size(), run.stage.network().trained_parameters().size());
    StageRun again(model, GetParam());
    again.stage.begin(split);
    for (int m = 0; m < 2; ++m) {
      again.forward(m);
      again.backward(m);
      again.weights(m);
    }
    for (const auto& [name, parameter] :
         again.stage.network().trained_parameters()) {
      const at::Tensor own = run.parameter(name);
      const auto entry = std::ranges::find_if(
          reported, [&](const auto& pair) { return pair.first.is_same(own); });
      ASSERT_NE(entry, reported.end()) << name;
      EXPECT_TRUE(torch::equal(entry->second, parameter.grad())) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Networks,
                         SplitBackward,
                         testing::ValuesIn(split_cases()),
                         [](const auto& network) {
                           return network.param.name;
                         });

}  // namespace
}  // namespace cleave
