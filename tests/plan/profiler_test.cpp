#include "cleave/plan/measure/profiler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <string>

#include "cleave/device/memory.h"
#include "cleave/error.h"
#include "cleave/model/families/families.h"
#include "cleave/model/model.h"
#include "cleave/plan/measure/device_specs.h"
#include "cleave/plan/measure/interpolate.h"
#include "cleave/plan/measure/measured_plan.h"
#include "cleave/plan/stage_costs.h"
#include "cleave/schedule/complete.h"
#include "cleave/stage/stage.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kSamples = 16;

Model wide_mlp() {
  return mlp({.input = {kWidth}, .outputs = 4, .width = kWidth, .depth = 3});
}

Batch samples() {
  return {torch::randn({kSamples, kWidth}), torch::randint(4, {kSamples})};
}

Devices two_devices() {
  return local_devices("cpu:2", {.threads = 1, .pin = false});
}

TEST(Profiler, bytes_are_those_of_the_layers) {
  const Model model = wide_mlp();
  const Profile found = profile(model, samples(), {}, {two_devices().front()});
  ASSERT_EQ(found.layers.size(), 8u);  // flatten, 3 x (linear, relu), out
  EXPECT_EQ(found.microbatch, kSamples);
  const LayerCost& linear = found.layers[1];
  EXPECT_EQ(linear.name, "hidden.0");
  EXPECT_EQ(linear.parameters.value, 4 * (kWidth * kWidth + kWidth));
  EXPECT_EQ(linear.crossing.value, 4 * kSamples * kWidth);
  EXPECT_EQ(linear.activations.value, 4 * kSamples * kWidth);
  EXPECT_EQ(found.layers.back().crossing.value, 0);
  EXPECT_GT(linear.forward.value, 0);
  EXPECT_GT(linear.weight.value, 0);
}

// What a device keeps of a microbatch for a stage of these layers, when its
// results have left it; another device has the layers before.
Bytes kept_by_stage(const Model& model,
                    int first,
                    int end,
                    const at::Tensor& batch) {
  const auto before = std::make_shared<DeviceMemory>();
  const auto own = std::make_shared<DeviceMemory>();
  Stage earlier(model, 0, std::max(1, first));
  Stage stage(model, first, end);
  const Moment moment{0, 1, {0}};
  Values values{batch};
  if (first > 0) {
    const MemoryScope scope(before);
    values = earlier.forward({0}, {batch.clone()}, moment, {});
  }
  const MemoryScope scope(own);
  std::ranges::for_each(values, take_over);
  values = stage.forward({0}, values, moment, {});
  values.clear();
  return own->live();
}

void expect_right_activations(const Model& model, const Batch& batch) {
  const Profile found = profile(model, batch, {}, {two_devices().front()});
  for (int first = 0; first + 1 < model.size(); ++first) {
    Bytes predicted = first > 0 ? found.layers[first - 1].crossing : Bytes{};
    for (int end = first + 1; end < model.size(); ++end) {
      predicted += found.layers[end - 1].activations;
      const Bytes kept = kept_by_stage(model, first, end, batch.inputs);
      const Bytes left = predicted - found.layers[end - 1].loose;
      EXPECT_GE(left.value, kept.value) << first << " to " << end;
      EXPECT_LE(left.value, kept.value + kept.value / 50)
          << first << " to " << end;
    }
  }
}

TEST(Profiler, activations_add_up_to_what_a_stage_keeps) {
  expect_right_activations(wide_mlp(), samples());
  expect_right_activations(
      gpt({.width = 32,
           .depth = 2,
           .heads = 2,
           .context = 16,
           .vocabulary = 64}),
      {torch::randint(64, {2, 16}), torch::randint(64, {2, 16})});
  expect_right_activations(
      gpt({.width = 32,
           .depth = 1,
           .heads = 2,
           .context = 16,
           .vocabulary = 64,
           .tied = false,
           .head_parts = 4}),
      {torch::randint(64, {2, 16}), torch::randint(64, {2, 16})});
  expect_right_activations(
      resnet({.input = {1, 8, 8}, .outputs = 2, .width = 8, .depth = 2}),
      {torch::randn({3, 1, 8, 8}), torch::randint(2, {3})});
}

// What a stage's actions need in a device's memory, where they come after each
// other.
struct ActionNeeds {
  Bytes forward;  // with what it is given
  Bytes backward;
  Bytes weight;
};

std::vector<ActionNeeds> action_needs(Stage& stage,
                                      const Values& inputs,
                                      bool split,
                                      int turns) {
  const auto memory = std::make_shared<DeviceMemory>();
  const MemoryScope scope(memory);
  const auto needed = [&](const auto& action) {
    const Bytes before = memory->live();
    memory->reset_peak();
    action();
    return memory->peak() - before;
  };
  std::vector<ActionNeeds> found;
  stage.begin(split);
  for (int turn = 0; turn < turns; ++turn) {
    ActionNeeds& needs = found.emplace_back();
    Values values;
    needs.forward = needed([&] {
      for (const at::Tensor& input : inputs) {
        values.push_back(input.clone());
        values.back().set_requires_grad(input.requires_grad());
      }
      values = stage.forward({turn}, std::move(values), {0, 1, {turn}}, {});
    });
    Bytes seeds;
    for (at::Tensor& value : values) {
      const bool wanted = value.requires_grad();
      value = wanted ? at::ones_like(value) : at::Tensor();
      seeds += Bytes{wanted ? static_cast<std::int64_t>(value.nbytes()) : 0};
    }
    needs.backward =
        seeds + needed([&] { stage.backward({turn}, std::move(values)); });
    needs.weight = needed([&] { stage.weights({turn}); });
  }
  return found;
}

void expect_enough(Bytes predicted, Bytes needed, const std::string& what) {
  EXPECT_GE(predicted.value, needed.value) << what;
  EXPECT_LE(predicted.value, 2 * needed.value) << what;
}

void expect_right_needs(const Model& model, const Batch& batch) {
  const SingleThreadScope alone;  // as on a device of one core
  const ScaledRequest scaled(
      profile(model, batch, {}, {two_devices().front()}),
      {{.batch = batch.inputs.size(0)}, {.microbatches = 1}},
      1);
  for (int first = 0; first + 1 < model.size(); ++first) {
    Values inputs{batch.inputs};
    if (first > 0) {
      inputs = Stage(model, 0, first).forward({0}, inputs, {0, 1, {0}}, {});
    }
    for (int end = first + 1; end < model.size(); ++end) {
      const std::string what =
          std::to_string(first) + " to " + std::to_string(end);
      const StagePrediction stage = stage_cost(scaled, {}, first, end);
      const StageBytes& memory = stage.memory;
      if (stage.parameters == Bytes{}) {
        continue;
      }
      Stage whole(model, first, end);
      Stage split(model, first, end);
      const auto in_one = action_needs(whole, inputs, false, 2);
      const Bytes given{
          first > 0 ? 0 : static_cast<std::int64_t>(batch.inputs.nbytes())};
      expect_enough(
          memory.forward_need, in_one[1].forward - given, what + ", F");
      const auto in_two = action_needs(split, inputs, true, 2);
      expect_enough(memory.whole_need, in_one[1].backward, what + ", whole");
      expect_enough(memory.backward_need, in_two[1].backward, what + ", B");
      EXPECT_GE(memory.weight_need, in_two[1].weight) << what;
      // The first ones make the gradients, which plans count all the time.
      const Bytes gradients = stage.parameters;
      EXPECT_GE(gradients + memory.whole_need, in_one[0].backward) << what;
      EXPECT_GE(gradients + memory.backward_need, in_two[0].backward) << what;
      EXPECT_GE(gradients + memory.weight_need, in_two[0].weight) << what;
    }
  }
}

TEST(Profiler, what_actions_need_is_what_those_of_a_stage_need) {
  expect_right_needs(
      mlp({.input = {64}, .outputs = 4, .width = 64, .depth = 3}),
      {torch::randn({64, 64}), torch::randint(4, {64})});
  expect_right_needs(
      gpt({.width = 64,
           .depth = 2,
           .heads = 2,
           .context = 32,
           .vocabulary = 256,
           .tied = false,
           .head_parts = 2}),
      {torch::randint(256, {2, 32}), torch::randint(256, {2, 32})});
}

TEST(Profiler, layers_of_the_same_kind_are_measured_once) {
  const Profile found =
      profile(wide_mlp(), samples(), {}, {two_devices().front()});
  // flatten; the first linear, whose input needs no gradient; its like; relu;
  // out with the loss.
  EXPECT_EQ(found.measured, 5);
  EXPECT_EQ(found.layers[3].forward, found.layers[5].forward);
}

TEST(Profiler, what_a_stage_takes_for_itself_is_told_apart) {
  const Profile found =
      profile(wide_mlp(), samples(), {}, {two_devices().front()});
  EXPECT_GT(found.overhead.forward.value, 0);
  EXPECT_GT(found.overhead.backward.value, 0);
  for (const LayerCost& layer : found.layers) {
    EXPECT_GE(layer.forward.value, 0) << layer.name;
    EXPECT_GE(layer.backward.value, 0) << layer.name;
  }
}

TEST(Profiler, a_skip_counts_at_every_cut_it_crosses) {
  const Model model =
      resnet({.input = {1, 4, 4}, .outputs = 2, .width = 2, .depth = 1});
  const Profile found =
      profile(model,
              {torch::randn({3, 1, 4, 4}), torch::randint(2, {3})},
              {},
              {two_devices().front()});
  const std::int64_t image = 4 * 3 * 2 * 4 * 4;
  EXPECT_EQ(found.layers[0].crossing.value, image);      // behind the stem
  EXPECT_EQ(found.layers[1].crossing.value, 2 * image);  // inside the block
  EXPECT_EQ(found.layers[7].crossing.value, image);      // behind its sum
}

TEST(Profiler, a_plan_holds_every_layer_once_and_predicts_something) {
  const Model model = wide_mlp();
  const Plan found = plan(model,
                          two_devices(),
                          samples(),
                          {.batch = 64},
                          {.stages = 2, .microbatches = 4});
  check_plan(found, model.layer_names());
  EXPECT_EQ(found.stages.size(), 2u);
  EXPECT_GT(found.prediction->step.value, 0);
  EXPECT_GT(found.prediction->peaks[0], found.prediction->stages[0].parameters);
}

TEST(Profiler, a_plan_takes_samples_and_batch_from_data_and_training) {
  const Model model = wide_mlp();
  const auto [inputs, targets] = samples();
  const TensorDataset data(inputs, targets, 4, "samples");
  const PlanRequest request{.stages = 2, .microbatches = 2};
  const Devices devices = two_devices();
  EXPECT_EQ(plan(model, devices, data, {.batch = 8}, request).batch, 8);
  EXPECT_EQ(plan(model, devices, data, {.batch = 64}, request).batch, kSamples);
  EXPECT_THROW(plan(model, devices, data, {}, request), Error);
  const Plan of_sgd = plan(model,
                           devices,
                           data,
                           {.optimizer = Sgd{.momentum = 0}, .batch = 8},
                           request);
  const Plan of_adamw = plan(model, devices, data, {.batch = 8}, request);
  EXPECT_GT(of_adamw.prediction->stages[0].fixed,
            of_sgd.prediction->stages[0].fixed);
}

Model small_gpt() {
  return gpt({.width = 32,
              .depth = 2,
              .heads = 2,
              .context = 16,
              .vocabulary = 64,
              .tied = true});
}

TEST(Profiler, ranks_that_are_processes_do_not_steal) {
  Devices devices = two_devices();
  for (Device& device : devices) {
    device.process = true;
  }
  const Plan found =
      plan(wide_mlp(), devices, samples(), {.batch = 8}, {.stages = 2});
  EXPECT_FALSE(found.steals);
  EXPECT_EQ(found.in_order_because, "ranks are processes");
}

TEST(Profiler, a_plan_has_the_ties_of_the_model) {
  const Model model = small_gpt();
  const std::vector<LayerTie> ties = layer_ties(model);
  EXPECT_EQ(ties, (std::vector<LayerTie>{{0, model.size() - 1}}));
  const Batch batch{torch::randint(64, {8, 16}), torch::randint(64, {8, 16})};
  const Plan found =
      plan(model, two_devices(), batch, {.batch = 8}, {.stages = 2});
  check_plan(found, model.layer_names(), ties);
  EXPECT_EQ(found.schedule.graph.ties(),
            (std::vector<StageTie>{{StageId{0}, StageId{1}}}));
  EXPECT_TRUE(layer_ties(wide_mlp()).empty());
}

TEST(Profiler, a_plan_clips_and_fills_buckets_as_the_training_says) {
  const Model model = wide_mlp();
  const PlanRequest request{.stages = 1, .replicas = 2, .microbatches = 2};
  const auto found = [&](const Training& training) {
    return plan(model, two_devices(), samples(), training, request);
  };
  const Plan whole = found({.batch = 8});
  EXPECT_FALSE(whole.schedule.synchronisation.clips);
  EXPECT_EQ(whole.stages[0].buckets.size(), 1U);
  const Plan clipped = found({.clip = 1, .batch = 8, .bucket = {1}});
  EXPECT_TRUE(clipped.schedule.synchronisation.clips);
  EXPECT_EQ(clipped.stages[0].buckets.size(), 4U);  // layers with parameters
}

// Of passes alone; the batch is profiled with its two microbatches.
TEST(Profiler, a_plan_takes_a_schedule_that_is_given) {
  const TemporaryFolder folder;
  put(folder / "s.txt", "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1 B1\n");
  const Model model = wide_mlp();
  const Plan found = plan(model,
                          two_devices(),
                          samples(),
                          {.batch = 8},
                          {.schedule = "file:" + (folder / "s.txt").string()});
  check_plan(found, model.layer_names());
  EXPECT_EQ(to_text(passes_of(found.schedule)), content_of(folder / "s.txt"));
}

TEST(Profiler, the_number_of_microbatches_is_chosen_where_it_is_left_open) {
  const Model model = wide_mlp();
  const Plan found = plan(model, two_devices(), samples(), {.batch = 64});
  check_plan(found, model.layer_names());
  const std::set tried{2, 4, 8, 16};
  EXPECT_TRUE(tried.contains(found.schedule.microbatches))
      << found.schedule.microbatches;
}

// On two devices, whose bubble falls with every further microbatch.
TEST(Profiler, the_number_of_microbatches_weighs_bubbles_against_overhead) {
  const auto microbatches_where = [](Seconds overhead) {
    Profile small{.microbatch = 4, .overhead = {.forward = overhead}};
    for (const char* name : {"a", "b", "c", "d"}) {
      small.layers.push_back(
          {.name = name, .forward = {0.001}, .backward = {0.002}});
    }
    Profile large = small;
    large.microbatch = 32;
    for (LayerCost& layer : large.layers) {
      layer.forward = 8 * layer.forward;
      layer.backward = 8 * layer.backward;
    }
    return plan_with_one_of({2, 4, 8, 16},
                            small,
                            large,
                            {{.name = "a"}, {.name = "b"}},
                            {{.batch = 64}, {.stages = 2, .schedule = "1f1b"}})
        .schedule.microbatches;
  };
  EXPECT_EQ(microbatches_where({}), 16);
  EXPECT_LT(microbatches_where({0.005}), 16);
  EXPECT_EQ(microbatches_where({1}), 2);
}

TEST(Profiler, more_devices_than_cores_leave_all_small_numbers_to_choose) {
  Devices devices = local_devices("cpu:1", {.threads = 1});
  for (const char* name : {"b", "c", "d"}) {
    devices.push_back(devices.front());
    devices.back().name = name;
  }
  const Plan found = plan(wide_mlp(), devices, samples(), {.batch = 64});
  EXPECT_LE(found.schedule.microbatches, 8);
}

TEST(Profiler, a_small_batch_has_no_more_microbatches_than_samples) {
  const Plan found = plan(wide_mlp(), two_devices(), samples(), {.batch = 3});
  EXPECT_LE(found.schedule.microbatches, 3);
}

TEST(Between, lies_on_the_line_through_both) {
  const Profile small{.microbatch = 2,
                      .layers = {{.forward = {1}, .activations = {100}}}};
  const Profile large{.microbatch = 8,
                      .layers = {{.forward = {4}, .activations = {700}}}};
  const Profile middle = between(small, large, 4);
  EXPECT_EQ(middle.microbatch, 4);
  EXPECT_DOUBLE_EQ(middle.layers[0].forward.value, 2);
  EXPECT_EQ(middle.layers[0].activations.value, 300);
  EXPECT_EQ(between(small, large, 2), small);
  EXPECT_EQ(between(small, large, 8).layers, large.layers);
}

TEST(Profiler, devices_that_share_a_core_are_told_by_it) {
  Devices devices = local_devices("cpu:1", {.threads = 1});
  EXPECT_EQ(device_specs(devices).front().core, -1);
  devices.push_back(devices.front());
  devices.push_back({.name = "anywhere"});
  devices.push_back({.name = "anywhere too"});
  const std::vector<DeviceSpec> specs = device_specs(devices);
  EXPECT_EQ(specs[0].core, devices[0].cores.front());
  EXPECT_EQ(specs[1].core, specs[0].core);
  EXPECT_EQ(specs[2].core, -1);
  EXPECT_EQ(specs[3].core, -1);
}

TEST(Profiler, of_devices_that_share_a_core_the_first_is_measured) {
  Devices devices = local_devices("cpu:1", {.threads = 1});
  devices.push_back(devices.front());
  devices.back().name = "other";
  EXPECT_EQ(profile(wide_mlp(), samples(), {}, devices).device,
            devices.front().name);
}

TEST(Profiler, devices_of_other_machines_are_not_measured) {
  Devices devices = two_devices();
  devices[1].elsewhere = true;
  EXPECT_EQ(profile(wide_mlp(), samples(), {}, devices).device,
            devices[0].name);
  devices[0].elsewhere = true;
  devices[1].elsewhere = false;
  EXPECT_EQ(profile(wide_mlp(), samples(), {}, devices).device,
            devices[1].name);
}

// Fails once, when both devices take steps.
struct FailsLate : torch::nn::Module {
  static at::Tensor forward(const at::Tensor& value) {
    TORCH_CHECK(++calls != 40, "call 40 fails");
    return value.relu();
  }
  static inline std::atomic<int> calls = 0;
};

TEST(Profiler, nobody_waits_for_a_device_that_has_failed) {
  FailsLate::calls = 0;
  Model model("late");
  model.add<torch::nn::Linear>("first", kWidth, kWidth);
  model.add<FailsLate>("fails");
  model.add<torch::nn::Linear>("last", kWidth, 4);
  try {
    profile(model, samples(), {}, two_devices());
    ADD_FAILURE() << "no error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("call 40 fails"),
              std::string::npos)
        << error.what();
  }
}

TEST(Profiler, a_layer_that_fails_is_named) {
  Model model("misfit");
  model.add<torch::nn::Linear>("fine", kWidth, 3);
  model.add<torch::nn::Linear>("wrong", 4, 4);
  EXPECT_THROW(plan(model, two_devices(), samples(), {.batch = 16}), Error);
}

}  // namespace
}  // namespace cleave
