#include "cleave/evaluate/evaluate.h"

#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/assemble.h"
#include "cleave/cli/verbs.h"

namespace cleave {
namespace {

struct EvaluateArguments {
  std::string config;
  std::string model;
  bool json = false;
};

void evaluate(const EvaluateArguments& arguments, const Overrides& overrides) {
  const Config config = load_config(arguments.config, overrides);
  const TrainAndTest data = data_of(config);
  const Evaluation found = evaluate_file(model_of(config, *data.train),
                                         arguments.model,
                                         *data.test,
                                         loss_of(config, *data.train),
                                         config.train.batch);
  if (arguments.json) {
    nlohmann::ordered_json report{{"model", arguments.model},
                                  {"samples", found.samples},
                                  {"loss", found.loss}};
    if (found.accuracy) {
      report["accuracy"] = *found.accuracy;
    }
    std::cout << report.dump(2) << '\n';
    return;
  }
  std::cout << arguments.model << " on " << found.samples
            << " test samples, on one device: loss " << std::fixed
            << std::setprecision(4) << found.loss;
  if (found.accuracy) {
    std::cout << ", accuracy " << *found.accuracy;
  }
  std::cout << '\n';
}

}  // namespace

void add_evaluate(CLI::App& program, const Overrides& overrides) {
  auto arguments = std::make_shared<EvaluateArguments>();
  CLI::App* verb = program.add_subcommand(
      "evaluate", "Evaluate a merged model on one device");
  verb->add_option("CONFIG",
                   arguments->config,
                   "TOML configuration; RUN/config.toml of the run it is from")
      ->required();
  verb->add_option("--model", arguments->model, "Merged safetensors file")
      ->required();
  verb->add_flag("--json", arguments->json, "Print JSON");
  verb->footer(help_for_keys());
  verb->callback([arguments, &overrides] { evaluate(*arguments, overrides); });
}

}  // namespace cleave
