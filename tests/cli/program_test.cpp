// The program in one process.
#include "program.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "cleave/atomic_file.h"

namespace cleave {
namespace {

TEST_F(Program, train_merge_and_evaluate_lead_to_one_another) {
  const std::string config = small_config();
  const Outcome trained = cleave("train " + config);
  ASSERT_EQ(trained.code, 0) << trained.output;
  for (const char* file : {"config.toml",
                           "plan.json",
                           "log.jsonl",
                           "schedule.svg",
                           "stages/manifest.json"}) {
    EXPECT_TRUE(fs::exists(path("run") + "/" + file)) << file;
  }
  const Outcome merged = cleave("merge " + path("run") + " --json");
  ASSERT_EQ(merged.code, 0) << merged.output;
  const std::string model =
      nlohmann::json::parse(merged.output).at("file").get<std::string>();
  const Outcome evaluated = cleave("evaluate " + path("run") +
                                   "/config.toml --json --model " + model);
  ASSERT_EQ(evaluated.code, 0) << evaluated.output;
  const auto report = nlohmann::json::parse(evaluated.output);
  EXPECT_EQ(report.at("samples"), 64);
  EXPECT_GT(report.at("accuracy").get<double>(), 0.1);

  // The last evaluation in the pipeline said the same.
  std::ifstream log(path("run") + "/log.jsonl");
  double accuracy = -1;
  for (std::string line; std::getline(log, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "evaluated") {
      accuracy = event.at("accuracy").get<double>();
    }
  }
  EXPECT_EQ(accuracy, report.at("accuracy").get<double>());
}

TEST_F(Program, a_plan_can_be_saved_edited_and_used) {
  const std::string config = small_config();
  const std::string file = path("plan.json");
  ASSERT_EQ(
      cleave("plan " + config + " --parallel.stages 2 --save " + file).code, 0);
  std::ifstream in(file);
  nlohmann::json plan = nlohmann::json::parse(in);
  auto& first = plan["stages"][0]["layers"];
  auto& second = plan["stages"][1]["layers"];
  if (first.size() > 1) {  // one layer moves on
    second.insert(second.begin(), first.back());
    first.erase(first.size() - 1);
  } else {  // or back
    first.push_back(second.front());
    second.erase(0);
  }
  std::ofstream(file) << plan;
  const Outcome trained =
      cleave("train " + config + " --parallel.plan " + file);
  EXPECT_EQ(trained.code, 0) << trained.output;
  std::ifstream used(path("run") + "/plan.json");
  EXPECT_EQ(nlohmann::json::parse(used)["stages"][1]["layers"], second);
}

TEST_F(Program, threads_that_were_asked_for_are_not_questioned) {
  const Outcome planned = cleave("plan " + small_config() +
                                 " --devices.use cpu:1 --devices.threads 2");
  ASSERT_EQ(planned.code, 0) << planned.output;
  EXPECT_EQ(planned.output.find("devices.threads"), std::string::npos)
      << planned.output;
}

// On the first core that this process may use.
TEST_F(Program, says_that_devices_share_cores) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  int core = 0;
  while (!CPU_ISSET(core, &cores)) {
    ++core;
  }
  const std::string plan = "taskset -c " + std::to_string(core) +
                           " " CLEAVE_PROGRAM " plan " + small_config();
  const Outcome split =
      shell(plan + " --parallel.stages 2 --parallel.schedule 1f1b");
  ASSERT_EQ(split.code, 0) << split.output;
  EXPECT_NE(split.output.find("there is 1 core"), std::string::npos)
      << split.output;
  EXPECT_EQ(shell(plan).output.find("there is 1 core"), std::string::npos);
}

TEST_F(Program, json_output_is_nothing_but_json) {
  const std::string config = small_config();
  for (const std::string& arguments :
       std::vector<std::string>{"devices --json",
                                "plan " + config + " --json",
                                "train " + config + " --json"}) {
    const Outcome outcome =
        shell("(" CLEAVE_PROGRAM " " + arguments + " 2>/dev/null)");
    EXPECT_TRUE(nlohmann::json::accept(outcome.output)) << outcome.output;
  }
}

TEST_F(Program, help_and_version_answer_everywhere) {
  const Outcome version = cleave("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.output.starts_with("cleave 0.1.0 (libtorch 2."))
      << version.output;
  EXPECT_TRUE(version.output.ends_with(")\n")) << version.output;
  for (const char* verb :
       {"", "quickstart", "devices", "plan", "train", "merge", "evaluate"}) {
    const Outcome outcome = cleave(std::string(verb) + " --help");
    EXPECT_EQ(outcome.code, 0) << verb;
    EXPECT_GT(outcome.output.size(), 100u) << verb;
  }
  EXPECT_NE(cleave("train --help").output.find("train.batch"),
            std::string::npos);
}

TEST_F(Program, nothing_at_all_is_answered_with_help) {
  const Outcome outcome = cleave("");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, cleave("--help").output);
}

TEST_F(Program, wrong_usage_ends_with_two) {
  expect_refused("--parallel.stages 2", {"subcommand"}, 2);
  expect_refused("trian", {}, 2);
  expect_refused("train", {"CONFIG"}, 2);
  expect_refused("devices --jsno", {"--jsno"}, 2);
}

TEST_F(Program, keys_are_refused_where_nothing_reads_them) {
  expect_refused("devices --devices.use cpu:4",
                 {"cleave devices", "--devices.use"});
  expect_refused("quickstart --train.epochs 1",
                 {"cleave quickstart", "--train.epochs"});
  expect_refused("merge " + path("none") + " --train.batch 4",
                 {"cleave merge", "--train.batch"});
}

TEST_F(Program, bad_configuration_is_told_in_one_line_and_leaves_nothing) {
  expect_refused("train " + path("none.toml"), {"none.toml"});
  expect_refused("train " + small_config("overwite = true\n"),
                 {"small.toml", "overwite", "overwrite"});
  expect_refused("train " + small_config() + " --train.bacth 3",
                 {"train.bacth", "train.batch"});
  expect_refused("train " + small_config() + " --train.batch many",
                 {"train.batch", "an integer"});
  expect_refused("train " + small_config() + " --parallel.stealing maybe",
                 {"parallel.stealing", "true or false", "maybe"});
  expect_refused("train " + small_config() + " --parallel.stages 40",
                 {"cannot cut 4 layers into 40 stages", "between 1 and"});
  expect_refused("train " + small_config() + " --parallel.stages 3",
                 {"3 stages", "device"});
  expect_refused("train " + small_config() + " --devices.memory 1KiB",
                 {"1.00 KiB", "at least"});
  expect_refused("train " + small_config() +
                     " --data.source fashion-mnist --data.path " +
                     path("nowhere"),
                 {"nowhere", "dataset-fashion-mnist"});
  expect_refused("train " + small_config() + " --devices.use gpu:1", {"gpu:1"});
  expect_refused("train " + small_config() + " --model.family gpt",
                 {"gpt", "tokens"});
  expect_refused(
      "train " + small_config() + " --parallel.plan " + path("none.json"),
      {"none.json"});
}

TEST_F(Program, the_smallest_budget_it_names_is_enough) {
  const std::string config = small_config();
  const std::string refused =
      cleave("plan " + config + " --devices.memory 1KiB").output;
  const std::string words = "at least ";
  const size_t start = refused.find(words);
  ASSERT_NE(start, std::string::npos) << refused;
  const size_t first = start + words.size();
  const std::string budget =
      refused.substr(first, refused.find_first_of(",;", first) - first);
  const Outcome planned =
      cleave("plan " + config + " --devices.memory '" + budget + "'");
  EXPECT_EQ(planned.code, 0) << budget << '\n' << planned.output;
}

TEST_F(Program, damaged_weights_are_refused) {
  const std::string config = small_config();
  std::ofstream(path("bad.safetensors")) << "no tensors here";
  expect_refused("evaluate " + config + " --model " + path("bad.safetensors"),
                 {"bad.safetensors"});
  expect_refused("evaluate " + config + " --model " + path("none"), {"none"});
  expect_refused("merge " + path("none"), {"there is no run in"});
}

TEST_F(Program, a_folder_with_another_run_is_left_alone) {
  const std::string config = small_config();
  ASSERT_EQ(cleave("train " + config).code, 0);
  const auto before = fs::last_write_time(path("run") + "/log.jsonl");
  const Outcome again = cleave("train " + config);
  EXPECT_EQ(again.code, 1);
  EXPECT_NE(again.output.find("holds another run"), std::string::npos);
  EXPECT_EQ(fs::last_write_time(path("run") + "/log.jsonl"), before);
  EXPECT_EQ(cleave("train " + config + " --output.overwrite").code, 0);
}

TEST_F(Program, an_interrupted_run_keeps_what_it_has) {
  const std::string config = small_config();
  const std::string log = path("output.txt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string command = std::string("exec ") + CLEAVE_PROGRAM +
                                " train " + config +
                                " --train.steps 100000000 > " + log + " 2>&1";
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  // Once a step is logged, training is under way.
  const auto training = [&] {
    std::ifstream file(path("run") + "/log.jsonl");
    std::string line;
    while (std::getline(file, line)) {
      if (line.find("step_done") != std::string::npos) {
        return true;
      }
    }
    return false;
  };
  while (!training() && waitpid(child, nullptr, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::ifstream file(log);
  const std::string output(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(WEXITSTATUS(status), 1) << output;
  EXPECT_NE(output.find("interrupted after step"), std::string::npos) << output;
  EXPECT_EQ(cleave("merge " + path("run")).code, 0);
}

TEST_F(Program, a_traced_run_leaves_a_trace_and_a_page) {
  const Outcome outcome =
      cleave("train " + small_config("trace = 2\n") + " --train.steps 4");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const nlohmann::json trace =
      nlohmann::json::parse(read_file(path("run") + "/trace.json"));
  std::set<int> steps;
  int updates = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "compute") {
      steps.insert(event.at("args").at("step").get<int>());
      updates += event.at("name") == "U" ? 1 : 0;
    }
  }
  EXPECT_GE(updates, 2);  // one of every stage, in both steps
  EXPECT_EQ(steps, (std::set<int>{2, 3}));
  const std::string page = read_file(path("run") + "/timeline.html");
  EXPECT_LT(page.find("predicted"), page.find("measured"));
  EXPECT_NE(page.find(">U of stage 0"), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
}

TEST_F(Program, ranks_that_steal_work_train_to_the_same_bits) {
  const std::string config = small_config();
  const std::string file = path("edited.json");
  ASSERT_EQ(cleave("plan " + config +
                   " --devices.use cpu:2 --parallel.stages 2 "
                   "--parallel.schedule gpipe --parallel.microbatches 4 "
                   "--parallel.stealing false --save " +
                   file)
                .code,
            0);
  nlohmann::json plan = nlohmann::json::parse(read_file(file));
  EXPECT_FALSE(plan.at("steals").get<bool>());
  std::vector<std::string> merged;
  for (const bool steals : {true, false}) {
    plan["steals"] = steals;
    std::ofstream(file) << plan;
    const Outcome trained = cleave(
        "train " + config + " --output.overwrite --parallel.plan " + file);
    ASSERT_EQ(trained.code, 0) << trained.output;
    const auto used =
        nlohmann::json::parse(read_file(path("run") + "/plan.json"));
    EXPECT_EQ(used.at("steals").get<bool>(), steals);
    ASSERT_EQ(cleave("merge " + path("run")).code, 0);
    merged.push_back(read_file(path("run") + "/model.safetensors"));
  }
  EXPECT_EQ(merged[0], merged[1]);
}

// What a device computed in a traced step, by when it began.
std::string computed(const std::string& trace, int step, int stage) {
  std::map<double, std::string> by_start;
  const nlohmann::json parsed = nlohmann::json::parse(trace);
  for (const auto& event : parsed["traceEvents"]) {
    if (event.value("cat", "") == "compute" && event["args"]["step"] == step &&
        event["args"]["stage"] == stage) {
      by_start[event["ts"].get<double>()] = event["name"].get<std::string>();
    }
  }
  std::string text;
  for (const auto& [start, name] : by_start) {
    text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

// The plan's file holds the whole schedule, and what is moved in it runs so.
TEST_F(Program, a_schedule_edited_by_hand_runs_in_that_order) {
  const std::string config = small_config();
  const std::string file = path("plan.json");
  ASSERT_EQ(cleave("plan " + config +
                   " --devices.use cpu:2 --parallel.stages 2 "
                   "--parallel.schedule 1f1b --parallel.microbatches 3 "
                   "--parallel.stealing false --save " +
                   file)
                .code,
            0);
  nlohmann::json plan = nlohmann::json::parse(read_file(file));
  nlohmann::json& rows = plan["schedule"]["rows"];
  EXPECT_EQ(rows[0], "F0 SF0 F1 SF1 RB0 B0 F2 SF2 RB1 B1 RB2 B2 U");
  EXPECT_EQ(rows[1], "RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 B2 SB2 U");
  rows[0] = "F0 SF0 F1 SF1 F2 SF2 RB0 B0 RB1 B1 RB2 B2 U";
  rows[1] = "RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 B2 U SB2";
  std::ofstream(file) << plan;
  const std::string train = "train " + config + " --output.overwrite ";
  const Outcome trained =
      cleave(train + "--output.trace 2 --parallel.plan " + file);
  ASSERT_EQ(trained.code, 0) << trained.output;
  const std::string trace = read_file(path("run") + "/trace.json");
  EXPECT_EQ(computed(trace, 2, 0), "F0 F1 F2 B0 B1 B2 U");
  EXPECT_EQ(computed(trace, 2, 1), "F0 B0 F1 B1 F2 B2 U");
  EXPECT_EQ(nlohmann::json::parse(
                read_file(path("run") + "/plan.json"))["schedule"]["rows"],
            rows);
  rows[1] = "RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 U B2 SB2";
  std::ofstream(file) << plan;
  const Outcome refused = cleave(train + "--parallel.plan " + file);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.output.find(
                "rank 1: ... B0 SB0 RF1 F1 B1 SB1 RF2 F2 U B2 SB2\n"
                "                                        ^ U before B2, "
                "which it needs"),
            std::string::npos)
      << refused.output;
}

TEST_F(Program, a_plan_for_more_devices_than_there_are_is_refused) {
  const std::string config = small_config();
  const std::string file = path("plan.json");
  ASSERT_EQ(cleave("plan " + config +
                   " --devices.use cpu:2 --parallel.stages 2 --save " + file)
                .code,
            0);
  for (const char* verb : {"plan ", "train "}) {
    expect_refused(
        verb + config + " --devices.use cpu:1 --parallel.plan " + file,
        {"the plan uses 2 devices, but there is 1"});
  }
}

TEST_F(Program, a_schedule_can_be_given_as_text) {
  const std::string config = small_config();
  std::ofstream(path("s.txt")) << "rank 0: F0 F1 B0 W0 B1 W1\n"
                                  "rank 1: F0 B0 F1 B1 W0 W1\n";
  const std::string given = " --parallel.schedule file:" + path("s.txt");
  const Outcome planned =
      cleave("plan " + config + given + " --json --devices.use cpu:2");
  ASSERT_EQ(planned.code, 0) << planned.output;
  const nlohmann::json schedule =
      nlohmann::json::parse(planned.output)["schedule"];
  EXPECT_EQ(schedule["microbatches"], 2);
  EXPECT_EQ(schedule["rows"][1], "RF0 F0 B0 SB0 RF1 F1 B1 SB1 W0 W1 U");
  expect_refused("train " + config + " --parallel.schedule file:/no/such",
                 {"/no/such"});
  EXPECT_EQ(cleave("train " + config + given).code, 0);
}

TEST_F(Program, keys_of_earlier_versions_name_the_new_ones) {
  const std::string config = small_config();
  expect_refused("plan " + config + " --parallel.lend true",
                 {"parallel.lend is now parallel.stealing"});
  expect_refused("plan " + config + " --parallel.shard optimizer",
                 {"parallel.shard is now parallel.shard_states"});
}

TEST_F(Program, quickstart_walks_the_eight_steps) {
  const Outcome outcome = cleave("quickstart --output " + path("run"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  size_t place = 0;
  for (const char* words : {"Step 1 of 8: environment",
                            "Step 2 of 8: synthetic data",
                            "Step 3 of 8: segments defined",
                            "Step 4 of 8: strategy chosen",
                            "Step 5 of 8: dataset split and prepared",
                            "Step 6 of 8: segments trained in parallel",
                            "Step 7 of 8: segments merged",
                            "the trained segments: all",
                            "a one-device run: all",
                            "Step 8 of 8: final model evaluated"}) {
    place = outcome.output.find(words, place);
    ASSERT_NE(place, std::string::npos) << words << '\n' << outcome.output;
  }
  const size_t accuracy = outcome.output.find("accuracy ", place);
  ASSERT_NE(accuracy, std::string::npos);
  EXPECT_GE(std::stod(outcome.output.substr(accuracy + 9)), 0.95);
}

}  // namespace
}  // namespace cleave
