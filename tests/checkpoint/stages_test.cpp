#include "cleave/checkpoint/stages.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>

#include "cleave/checkpoint/run_folder.h"
#include "cleave/error.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

SavedStages two_stages() {
  return {.model = "pair",
          .step = 7,
          .stages = {{{"b.weight", torch::randn({2, 3})},
                      {"a.weight", torch::randn({4})}},
                     {{"c.steps", torch::tensor(5)}}}};
}

template <class Call>
std::string problem_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Stages, what_is_saved_comes_back_in_the_same_order) {
  const TemporaryFolder folder;
  const SavedStages saved = two_stages();
  save_stages(saved, folder / "stages");
  const SavedStages back = load_stages(folder / "stages");
  EXPECT_EQ(back.model, "pair");
  EXPECT_EQ(back.step, 7);
  ASSERT_EQ(back.stages.size(), 2u);
  EXPECT_EQ(back.stages[0][0].first, "b.weight");
  EXPECT_TRUE(
      torch::equal(back.stages[0][1].second, saved.stages[0][1].second));
  EXPECT_FALSE(fs::exists(folder / "stages.tmp"));
}

TEST(Stages, saving_again_replaces_the_folder_as_a_whole) {
  const TemporaryFolder folder;
  save_stages(two_stages(), folder / "stages");
  save_stages({.model = "one", .stages = {{{"x", torch::ones({1})}}}},
              folder / "stages");
  EXPECT_EQ(load_stages(folder / "stages").stages.size(), 1u);
  EXPECT_FALSE(fs::exists(folder / "stages/stage-1.safetensors"));
}

TEST(Stages, merging_keeps_the_names_and_the_order_of_the_layers) {
  const TensorMap merged = merge(two_stages());
  ASSERT_EQ(merged.size(), 3u);
  EXPECT_EQ(merged[0].first, "b.weight");
  EXPECT_EQ(merged[2].first, "c.steps");
  SavedStages doubled = two_stages();
  doubled.stages.push_back(doubled.stages[0]);
  EXPECT_EQ(problem_of([&] { merge(doubled); }),
            "two stages hold the tensor 'b.weight'. The stages are not of one "
            "run.");
}

TEST(Stages, files_that_do_not_belong_together_are_refused) {
  const TemporaryFolder folder;
  const fs::path stages = folder / "stages";
  EXPECT_NE(problem_of([&] { load_stages(stages); }).find("cannot be read"),
            std::string::npos);
  save_stages(two_stages(), stages);
  save_safetensors({{"d", torch::ones({1})}}, stages / "stage-1.safetensors");
  EXPECT_NE(problem_of([&] {
              load_stages(stages);
            }).find("lacks the tensor 'c.steps'"),
            std::string::npos);
  fs::remove(stages / "stage-1.safetensors");
  EXPECT_NE(problem_of([&] { load_stages(stages); }), "none");
  for (const char* manifest :
       {"",
        "[]",
        "{}",
        R"({"format": "cleave-stages", "version": 2})",
        R"({"format": "cleave-stages", "version": 1, "model": 3})"}) {
    std::ofstream(stages / "manifest.json") << manifest;
    EXPECT_NE(problem_of([&] { load_stages(stages); }), "none") << manifest;
  }
}

TEST(RunFolder, a_folder_that_holds_a_run_is_not_touched) {
  const TemporaryFolder folder;
  const fs::path path = folder / "run";
  const RunFolder run = RunFolder::create(path, false);
  std::ofstream(run.config()) << "first";
  std::ofstream(path / "notes.txt") << "mine";
  EXPECT_NE(problem_of([&] {
              RunFolder::create(path, false);
            }).find("holds another run"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(run.config()));
  RunFolder::create(path, true);
  EXPECT_FALSE(fs::exists(run.config()));
  EXPECT_TRUE(fs::exists(path / "notes.txt"));
}

TEST(RunFolder, where_there_is_no_run_none_is_opened) {
  const TemporaryFolder folder;
  EXPECT_THROW(RunFolder::open(folder / "none"), Error);
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(RunFolder::create(folder / "file", true), Error);
  EXPECT_THROW(RunFolder::create(folder / "file/below", true), Error);
}

}  // namespace
}  // namespace cleave
