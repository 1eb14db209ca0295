#include "cleave/train/executor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cleave/schedule/passes.h"

namespace cleave {
namespace {

// Stands for the rank behind: gives gradients of ones, each late until its
// rank has been asked for it `late` times.
class LateTransport : public Transport {
 public:
  LateTransport(int late, std::function<void(Microbatch)> received)
      : late_(late), received_(std::move(received)) {}

  Rank rank() const override { return {0}; }
  int ranks() const override { return 2; }
  void send(Rank /*to*/, const Tag& /*tag*/, Message message) override {
    shape_ = message.at(0).sizes().vec();
  }
  bool wait_for(Rank /*from*/, const Tag& tag, Seconds /*at_most*/) override {
    return asked_[tag.microbatch]++ >= late_;
  }
  Message receive(Rank /*from*/, const Tag& tag) override {
    received_(tag.microbatch);
    return {torch::ones(shape_)};
  }

 private:
  int late_;
  std::function<void(Microbatch)> received_;
  std::map<Microbatch, int> asked_;
  std::vector<std::int64_t> shape_;
};

Model two_linears() {
  Model model("two", 1);
  model.add<torch::nn::Linear>("a", 4, 4);
  model.add<torch::nn::Linear>("b", 4, 4);
  model.add<torch::nn::Linear>("other", 4, 2);
  return model;
}

// What one pass of the row found, with every gradient late `late` times.
struct Found {
  std::vector<int> gradients;  // parameters that had one at each receive
  std::vector<at::Tensor> sums;
  std::vector<int> done;  // receives before the stage was done
};

Found run_row(const std::string& row, int late) {
  Stage stage(two_linears(), 0, 2);
  Found found;
  const auto count = [&] {
    int defined = 0;
    for (const at::Tensor& parameter : stage.network().parameters()) {
      defined += parameter.grad().defined() ? 1 : 0;
    }
    return defined;
  };
  LateTransport transport(
      late, [&](Microbatch /*m*/) { found.gradients.push_back(count()); });
  Executor executor({{StageId{0}, &stage, {}}}, {{0}, {1}}, transport);
  torch::manual_seed(3);
  Pass pass{.schedule = std::make_shared<Schedule>(with_messages(
                parse_schedule("rank 0: " + row + "\nrank 1: " + row)))};
  for (int m = 0; m < 3; ++m) {
    pass.microbatches.push_back({torch::randn({5, 4}), torch::zeros({5})});
  }
  executor.run(pass, [&](StageId /*stage*/) {
    found.done.push_back(static_cast<int>(found.gradients.size()));
  });
  for (const at::Tensor& parameter : stage.network().parameters()) {
    found.sums.push_back(parameter.grad());
  }
  return found;
}

constexpr const char* kSplit = "F0 F1 F2 B0 B1 B2 W0 W1 W2";

TEST(Executor, keeps_to_its_row_while_messages_are_in_time) {
  EXPECT_EQ(run_row(kSplit, 0).gradients, (std::vector{0, 0, 0}));
}

TEST(Executor, works_at_weights_while_a_message_is_late) {
  EXPECT_EQ(run_row(kSplit, 1).gradients[1], 2);    // one piece: one layer
  EXPECT_EQ(run_row(kSplit, 100).gradients[1], 4);  // all of W0
}

TEST(Executor, the_order_of_sums_stays_however_late_messages_are) {
  const Found exact = run_row(kSplit, 0);
  for (const int late : {1, 2, 3, 5, 100}) {
    const Found found = run_row(kSplit, late);
    for (size_t i = 0; i < exact.sums.size(); ++i) {
      EXPECT_TRUE(torch::equal(found.sums[i], exact.sums[i])) << late;
    }
    EXPECT_EQ(found.done, (std::vector{3}));
  }
}

// B1 adds its weights' gradients itself: W0 goes first, W2 must not.
TEST(Executor, does_not_overtake_a_backward_that_is_not_split) {
  const char* row = "F0 F1 F2 B0 W0 B2 B1 W2";
  const Found exact = run_row(row, 0);
  const Found found = run_row(row, 100);
  EXPECT_EQ(found.gradients.size(), 3U);
  for (size_t i = 0; i < exact.sums.size(); ++i) {
    EXPECT_TRUE(torch::equal(found.sums[i], exact.sums[i]));
  }
}

}  // namespace
}  // namespace cleave
