#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "cleave/plan/make_plan.h"
#include "cleave/plan/plan.h"
#include "cleave/schedule/complete.h"
#include "cleave/schedule/generators/registry.h"
#include "tests/plan/profiles.h"
#include "tests/temporary_folder.h"

namespace cleave {
namespace {

// A file with the text of a schedule, and plans that take it.
class GivenSchedule : public testing::Test {
 protected:
  GivenSchedule() : file_(folder_ / "schedule.txt") {}

  PlanTask request() const {
    return {{.batch = 8}, {.schedule = "file:" + file_.string()}};
  }

  Plan plan(const std::string& text) const { return plan(text, request()); }
  Plan plan(const std::string& text, const PlanTask& wanted) const {
    put(file_, text);
    Plan made = make_plan(profile_, devices(2), wanted);
    check_plan(made, layers_of(profile_), profile_.ties);
    return made;
  }

  std::string error(const std::string& text) const {
    return error(text, request());
  }
  std::string error(const std::string& text, const PlanTask& wanted) const {
    return error_of([&] { plan(text, wanted); });
  }

  TemporaryFolder folder_;
  std::filesystem::path file_;
  Profile profile_ = profile_of({0.001, 0.001, 0.001, 0.001});
};

constexpr const char* kPasses = "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1 B1\n";

TEST_F(GivenSchedule, of_passes_alone_is_completed) {
  const Plan made = plan(kPasses);
  EXPECT_EQ(made.schedule, complete(make_schedule("1f1b", {2, 1, 2})));
  EXPECT_EQ(passes_of(made.schedule), parse_schedule(kPasses));
  EXPECT_EQ(made.schedule_name, request().schedule);
  EXPECT_EQ(made.devices.size(), 2U);
  EXPECT_GT(made.prediction->step, Seconds{});
  EXPECT_EQ(with_given_schedule(request()).microbatches, 2);
}

TEST_F(GivenSchedule, is_completed_with_ties_clipping_and_replicas) {
  profile_.ties = {{0, 3}};
  PlanTask wanted = request();
  wanted.clips = true;
  const Plan made = plan(kPasses, wanted);
  EXPECT_EQ(made.schedule.graph.ties(),
            (std::vector<StageTie>{{StageId{0}, StageId{1}}}));
  EXPECT_TRUE(made.schedule.synchronisation.clips);
  wanted.replicas = 2;
  put(file_, kPasses);
  const Plan replicated = make_plan(profile_, devices(4), wanted);
  check_plan(replicated, layers_of(profile_), profile_.ties);
  EXPECT_EQ(replicated.schedule.synchronisation.buckets, (std::vector{1, 1}));
}

TEST_F(GivenSchedule, that_is_complete_is_kept_as_it_is) {
  const std::string text =
      "rank 0: F0 F1 SF0 SF1 RB0 RB1 B0 B1 U\n"
      "rank 1: RF0 F0 B0 SB0 RF1 F1 B1 U SB1\n";
  EXPECT_EQ(to_text(plan(text).schedule), text);
}

TEST_F(GivenSchedule, that_is_complete_must_have_all_that_the_plan_needs) {
  PlanTask wanted = request();
  wanted.clips = true;
  const std::string found =
      error(to_text(complete(parse_schedule(kPasses))), wanted);
  EXPECT_NE(found.find("N missing"), std::string::npos) << found;
}

TEST_F(GivenSchedule, may_have_several_stages_of_a_rank) {
  const Plan made = plan(
      "rank 0: 0F0 1F0 1B0 0B0\n"
      "rank 1: 2F0 2B0\n");
  EXPECT_EQ(made.stages.size(), 3U);
  EXPECT_EQ(placement_of(made), (std::vector<Rank>{{0}, {0}, {1}}));
}

TEST_F(GivenSchedule, is_refused_where_the_numbers_of_microbatches_differ) {
  PlanTask wanted = request();
  wanted.microbatches = 4;
  EXPECT_EQ(error(kPasses, wanted),
            "the schedule in " + file_.string() +
                " has 2 microbatches, and 4 are asked for. Make them agree, or "
                "leave parallel.microbatches out.");
  wanted.microbatches = 2;
  EXPECT_EQ(error(kPasses, wanted), "no error");
}

TEST_F(GivenSchedule, is_refused_where_the_batch_has_too_few_samples) {
  PlanTask wanted = request();
  wanted.batch = 1;
  EXPECT_EQ(error(kPasses, wanted),
            "cannot make 2 microbatches of a batch of 1 sample. Give every "
            "microbatch at least one sample.");
}

TEST_F(GivenSchedule, is_refused_where_replicas_have_too_few_samples) {
  PlanTask wanted = request();
  wanted.batch = 3;
  wanted.replicas = 2;
  EXPECT_EQ(error(kPasses, wanted),
            "a batch of 3 samples is too small for 2 replicas with 2 "
            "microbatches. Give every microbatch of every replica at least one "
            "sample.");
  wanted.replicas = 0;
  EXPECT_EQ(error(kPasses, wanted), "no error");
}

TEST_F(GivenSchedule, is_refused_where_it_has_too_many_ranks_or_stages) {
  EXPECT_EQ(error("rank 0: F0 B0\nrank 1: F0 B0\nrank 2: F0 B0\n"),
            "the schedule in file:" + file_.string() +
                " has 3 ranks and 3 stages, but there are 2 devices and 4 "
                "layers. Name more devices, or write a schedule of fewer.");
  EXPECT_EQ(error("rank 0: 0F0 1F0 2F0 2B0 1B0 0B0\nrank 1: 3F0 4F0 4B0 3B0\n"),
            "the schedule in file:" + file_.string() +
                " has 2 ranks and 5 stages, but there are 2 devices and 4 "
                "layers. Name more devices, or write a schedule of fewer.");
}

TEST_F(GivenSchedule, is_refused_where_the_text_cannot_be_read) {
  const std::string action = error("rank 0: F0 X0 B0\n");
  EXPECT_TRUE(
      action.starts_with(file_.string() + ": 'X0' is no action of a schedule."))
      << action;
  EXPECT_EQ(error("F0 B0\n"),
            file_.string() +
                ": 'F0 B0' is not the row of rank 0. Write one line per rank, "
                "in order: 'rank 0: F0 B0'.");
}

TEST_F(GivenSchedule, is_refused_where_it_cannot_run) {
  EXPECT_EQ(error("rank 0: F0 F1 B0\nrank 1: F0 B0 F1 B1\n"),
            file_.string() +
                ": the schedule cannot run: it has 1 problem. Change what is "
                "marked:\n"
                "rank 0: F0 F1 B0\n"
                "                 ^ B1 missing\n");
}

TEST_F(GivenSchedule, is_refused_where_there_is_no_file) {
  EXPECT_EQ(error_of([&] { make_plan(profile_, devices(2), request()); }),
            "cannot read " + file_.string() +
                ". Check that the file exists and may be read.");
  EXPECT_EQ(error_of([&] { with_given_schedule(request()); }),
            "cannot read " + file_.string() +
                ". Check that the file exists and may be read.");
}

// What the bounds say is of the schedule that runs.
TEST_F(GivenSchedule, is_refused_where_no_cut_of_it_fits_the_memory) {
  for (LayerCost& layer : profile_.layers) {
    layer.activations = {1000};
  }
  put(file_, kPasses);
  const auto error_with = [&](Bytes memory) {
    return error_of(
        [&] { make_plan(profile_, devices(2, memory), request()); });
  };
  EXPECT_EQ(error_with({40'000}), "no error");
  EXPECT_TRUE(error_with({100}).starts_with("no cut of 'net' into 2 stages"))
      << error_with({100});
}

}  // namespace
}  // namespace cleave
