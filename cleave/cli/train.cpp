#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/interrupt.h"
#include "cleave/cli/run.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/verbs.h"
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
  nlohmann::ordered_json report{
      {"run", folder.path().string()},
      {"steps", result.steps},
      {"step_ms", result.median_step.value * 1e3},
      {"predicted_step_ms", run.plan.step.value * 1e3},
      {"test_loss", test.loss}};
  if (test.accuracy) {
    report["test_accuracy"] = *test.accuracy;
  }
  std::cout << report.dump(2) << '\n';
}

void train(const TrainArguments& arguments, const Overrides& overrides) {
  interrupt_flag();  // from here on Ctrl-C ends in good order
  const Run run = prepare_run(load_config(arguments.config, overrides));
  if (!arguments.json) {
    std::cout << plan_text(run.plan)
              << precision_advice(precision_named(run.config.train.precision),
                                  run.devices)
              << std::endl;
  }
  Trainer trainer(run.model,
                  run.plan,
                  run.devices,
                  trainer_options_of(run.config, *run.data.train));
  const RunFolder folder = open_run_folder(run);
  const FitResult result = train_run(run, folder, trainer, arguments.json);
  const std::string path = folder.path().string();
  if (result.interrupted) {
    fail("interrupted after step " + std::to_string(result.steps),
         "The stages as they were then are saved; cleave merge " + path +
             " joins them.");
  }
  if (arguments.json) {
    print_json(run, result, folder, trainer.evaluate(*run.data.test));
  } else {
    std::cout << "\nThe trained stages, the plan and the log are in " << path
              << ".\nNext: cleave merge " << path << '\n';
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
