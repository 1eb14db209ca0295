#include "cleave/evaluate/evaluate.h"

#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/assemble.h"
#include "cleave/cli/verbs.h"

namespace cleave {
namespace {

struct Options {
  std::string config;
  std::string model;
  bool json = false;
};

void evaluate(const Options& options, const Overrides& overrides) {
  const Config config = load_config(options.config, overrides);
  const TrainAndTest data = data_of(config);
  const Judgement judged = judge_file(model_of(config, *data.train),
                                      options.model,
                                      *data.test,
                                      loss_of(config, *data.train),
                                      config.train.batch);
  if (options.json) {
    nlohmann::ordered_json report{{"model", options.model},
                                  {"samples", judged.samples},
                                  {"loss", judged.loss}};
    if (judged.accuracy) {
      report["accuracy"] = *judged.accuracy;
    }
    std::cout << report.dump(2) << '\n';
    return;
  }
  std::cout << options.model << " on " << judged.samples
            << " test samples, on one device: loss " << std::fixed
            << std::setprecision(4) << judged.loss;
  if (judged.accuracy) {
    std::cout << ", accuracy " << *judged.accuracy;
  }
  std::cout << '\n';
}

}  // namespace

void add_evaluate(CLI::App& program, const Overrides& overrides) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = program.add_subcommand(
      "evaluate", "Judge a merged model on one device");
  verb->add_option("CONFIG",
                   options->config,
                   "TOML configuration; RUN/config.toml of the run it is from")
      ->required();
  verb->add_option("--model", options->model, "Merged safetensors file")
      ->required();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer(help_for_keys());
  verb->callback([options, &overrides] { evaluate(*options, overrides); });
}

}  // namespace cleave
