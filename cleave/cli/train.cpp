#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/advice.h"
#include "cleave/cli/exit.h"
#include "cleave/cli/interrupt.h"
#include "cleave/cli/launch/launch.h"
#include "cleave/cli/launch/launched.h"
#include "cleave/cli/launch/mpi_ranks.h"
#include "cleave/cli/run.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/verbs.h"
#include "cleave/counted.h"
#include "cleave/data/microbatches.h"
#include "cleave/error.h"

namespace cleave {
namespace {

struct TrainArguments {
  std::string config;
  bool json = false;
};

void print_json(const Run& run,
                const FitResult& result,
                const RunFolder& folder,
                const Evaluation& test) {
  nlohmann::ordered_json report{{"run", folder.path().string()},
                                {"steps", result.steps},
                                {"step_ms", result.median_step.value * 1e3},
                                {"test_loss", test.loss}};
  if (run.plan.prediction) {
    report["predicted_step_ms"] = run.plan.prediction->step.value * 1e3;
  }
  if (test.accuracy) {
    report["test_accuracy"] = *test.accuracy;
  }
  std::cout << report.dump(2) << '\n';
}

// Which samples of every batch go where.
void show_portions(const Run& run) {
  constexpr std::size_t kShown = 16;
  const Plan& plan = run.plan;
  const std::int64_t samples = run.data.train->size();
  std::cout << "\ndata | " << counted(samples, "sample") << " | "
            << counted(planned_steps(samples, plan.batch, {.epochs = 1}),
                       "batch")
            << " of " << plan.batch << " per epoch\n";
  if (plan.replicas == 1) {
    return;
  }
  const std::vector<ReplicaShare> shares =
      shares_of(plan.batch, plan.replicas, plan.schedule.microbatches);
  for (std::size_t i = 0; i < std::min(shares.size(), kShown); ++i) {
    std::cout << "replica " << i << " | samples " << shares[i].first << " to "
              << shares[i].first + shares[i].count - 1 << " of every batch, in "
              << counted(shares[i].microbatches, "microbatch") << '\n';
  }
  std::cout << (shares.size() > kShown ? "… and so on\n" : "");
}

void show_start(const Run& run, const Job& job) {
  std::cout
      << job.table() << (job.table().empty() ? "" : "\n") << plan_text(run.plan)
      << advice(run.config, run.model, *run.data.train, run.devices, run.plan);
  show_portions(run);
  std::cout << std::endl;
}

void show_end(const Run& run,
              const FitResult& result,
              const RunFolder& folder,
              const Evaluation& test,
              bool json) {
  const std::string path = folder.path().string();
  if (json) {
    print_json(run, result, folder, test);
  } else {
    std::cout << "\nThe trained stages, the plan and the log are in " << path
              << ".\nNext: cleave merge " << path << '\n';
  }
}

[[noreturn]] void fail_interrupted(const FitResult& result,
                                   const RunFolder& folder) {
  fail("interrupted after step " + std::to_string(result.steps),
       "The stages as they were then are saved; cleave merge " +
           folder.path().string() + " joins them.");
}

Trainer trainer_of(const Run& run, Job& job) {
  const Training training =
      training_of(run.config, *run.data.train, run.plan.batch);
  return job.world() == nullptr
             ? Trainer(run.model, run.plan, run.devices, training)
             : Trainer(
                   run.model, run.plan, run.devices, training, *job.world());
}

void train_in(Job& job, const Config& config, bool json) {
  const Run run = prepare_run(config, job);
  if (job.leads() && !json) {
    show_start(run, job);
  }
  Trainer trainer = trainer_of(run, job);
  const std::optional<RunFolder> folder =
      job.leads() ? std::optional(open_run_folder(run)) : std::nullopt;
  const FitResult result = train_run(run, folder, trainer, json);
  if (result.interrupted) {
    if (folder) {
      fail_interrupted(result, *folder);
    }
    throw Exit{kUserError};
  }
  const Evaluation test =
      json ? trainer.evaluate(*run.data.test) : Evaluation{};
  if (folder) {
    show_end(run, result, *folder, test, json);
  }
}

void train(const TrainArguments& arguments, const Overrides& overrides) {
  interrupt_flag();  // from here on Ctrl-C ends in good order
  const Config config = load_config(arguments.config, overrides);
  const std::optional<int> ranks = mpi_ranks(config.devices.use);
  if (ranks && !launched(std::getenv)) {
    if (*ranks == 0) {
      fail("devices.use is mpi, but no launcher started this process",
           "Start it with mpirun or srun, or write mpi:N for N ranks here.");
    }
    launch_ranks(*ranks, config.devices.patience);
    return;
  }
  Job job(config);
  try {
    train_in(job, config, arguments.json);
  } catch (const std::exception& error) {
    job.abort();
    const int code = job.timed_out() ? kResumable : kUserError;
    if (job.failed_elsewhere()) {
      throw Exit{code};
    }
    if (code == kResumable) {
      std::cerr << "cleave: " << error.what() << '\n';
      throw Exit{code};
    }
    throw;
  }
}

}  // namespace

void add_train(CLI::App& program, const Overrides& overrides) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* verb = program.add_subcommand(
      "train", "Plan a model and train its stages in parallel");
  verb->add_option("CONFIG", arguments->config, "TOML configuration")
      ->required();
  verb->add_flag("--json", arguments->json, "Print the result as JSON");
  verb->footer(help_for_keys());
  verb->callback([arguments, &overrides] { train(*arguments, overrides); });
}

}  // namespace cleave
