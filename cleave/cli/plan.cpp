#include "cleave/plan/plan.h"

#include <fstream>
#include <iostream>

#include "cleave/checkpoint/atomic_file.h"
#include "cleave/cli/assemble.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/verbs.h"

namespace cleave {
namespace {

struct Options {
  std::string config;
  std::string save;
  std::string svg;
  bool json = false;
};

void make(const Options& options, const Overrides& overrides) {
  const Config config = load_config(options.config, overrides);
  const TrainAndTest data = data_of(config);
  const Model model = model_of(config, *data.train);
  const Plan found =
      plan_of(config, model, *data.train, devices_of(config));
  if (options.json) {
    std::cout << to_json(found) << '\n';
  } else {
    std::cout << plan_text(found);
  }
  if (!options.save.empty()) {
    save_plan(found, options.save);
    std::cerr << "Saved as " << options.save
              << ". Edit it if you like; train with --parallel.plan "
              << options.save << '\n';
  }
  if (!options.svg.empty()) {
    write_file_atomically(options.svg, plan_svg(found));
  }
}

}  // namespace

void add_plan(CLI::App& program, const Overrides& overrides) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = program.add_subcommand(
      "plan", "Measure a model, cut it into stages, predict time and memory");
  verb->add_option("CONFIG", options->config, "TOML configuration")
      ->required();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--save", options->save, "Save the plan, to edit and use");
  verb->add_option("--svg", options->svg, "Draw the schedule into this file");
  verb->footer(help_for_keys());
  verb->callback([options, &overrides] { make(*options, overrides); });
}

}  // namespace cleave
