#include "cleave/plan/plan.h"

#include <fstream>
#include <iostream>

#include "cleave/atomic_file.h"
#include "cleave/cli/advice.h"
#include "cleave/cli/assemble.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/verbs.h"

namespace cleave {
namespace {

struct PlanArguments {
  std::string config;
  std::string save;
  std::string svg;
  bool json = false;
};

void make(const PlanArguments& arguments, const Overrides& overrides) {
  const Config config = load_config(arguments.config, overrides);
  const TrainAndTest data = data_of(config);
  const Model model = model_of(config, *data.train);
  const Devices devices = devices_of(config);
  const Plan found = plan_of(config, model, *data.train, devices);
  const std::string advised =
      advice(config, model, *data.train, devices, found);
  if (arguments.json) {
    std::cout << to_json(found) << '\n';
    std::cerr << advised;
  } else {
    std::cout << plan_text(found) << advised;
  }
  if (!arguments.save.empty()) {
    save_plan(found, arguments.save);
    std::cerr << "Saved as " << arguments.save
              << ". Edit it if you like; train with --parallel.plan "
              << arguments.save << '\n';
  }
  if (!arguments.svg.empty()) {
    write_file_atomically(arguments.svg, plan_svg(found));
  }
}

}  // namespace

void add_plan(CLI::App& program, const Overrides& overrides) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* verb = program.add_subcommand(
      "plan", "Measure a model, cut it into stages, predict time and memory");
  verb->add_option("CONFIG", arguments->config, "TOML configuration")
      ->required();
  verb->add_flag("--json", arguments->json, "Print JSON");
  verb->add_option("--save", arguments->save, "Save the plan, to edit and use");
  verb->add_option("--svg", arguments->svg, "Draw the schedule into this file");
  verb->footer(help_for_keys());
  verb->callback([arguments, &overrides] { make(*arguments, overrides); });
}

}  // namespace cleave
