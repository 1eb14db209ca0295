#include "cleave/cli/run.h"

#include <torch/types.h>

#include <iostream>

#include "cleave/checkpoint/atomic_file.h"
#include "cleave/checkpoint/stages.h"
#include "cleave/cli/interrupt.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/terminal.h"
#include "cleave/error.h"
#include "cleave/report/console.h"
#include "cleave/report/fan_out.h"
#include "cleave/report/jsonl.h"

namespace cleave {

Run prepare_run(const Config& config) {
  RunFolder::check_free(config.output.directory, config.output.overwrite);
  Devices devices = devices_of(config);
  TrainAndTest data = data_of(config);
  Model model = model_of(config, *data.train);
  stop_if_interrupted();
  Plan plan = plan_of(config, model, *data.train, devices);
  stop_if_interrupted();
  return {config,
          std::move(data),
          std::move(model),
          std::move(devices),
          std::move(plan)};
}

RunFolder open_run_folder(const Run& run) {
  RunFolder folder = RunFolder::create(run.config.output.directory,
                                       run.config.output.overwrite);
  write_file_atomically(folder.config(), to_toml(run.config));
  save_plan(run.plan, folder.plan());
  write_file_atomically(folder.schedule(), plan_svg(run.plan));
  return folder;
}

FitResult train_run(const Run& run,
                    const RunFolder& folder,
                    Trainer& trainer,
                    bool quiet) {
  const ConsoleOptions look = console_options();
  // A bar belongs to the terminal; lines belong with the other output.
  ConsoleSink console(
      look.terminal || quiet ? std::cerr : std::cout, look, now);
  JsonlSink log(folder.log(), JsonlSink::Mode::truncate);
  FanOutSink events({&console, &log});
  FitOptions options = fit_options_of(run.config, run.data.test.get());
  options.stop = &interrupt_flag();
  const FitResult result = trainer.fit(*run.data.train, options, events);
  save_stages({.model = run.model.name(),
               .step = result.steps,
               .stages = trainer.stages()},
              folder.stages());
  return result;
}

std::filesystem::path merge_run(const RunFolder& folder,
                                const std::filesystem::path& file) {
  const TensorMap merged = merge(load_stages(folder.stages()));
  save_safetensors(merged, file);
  const LoadedTensors back = load_safetensors(file);
  const std::map<std::string, at::Tensor> found(back.tensors.begin(),
                                                back.tensors.end());
  for (const auto& [name, tensor] : merged) {
    if (!found.contains(name) || !torch::equal(found.at(name), tensor)) {
      fail(file.string() + " does not hold what was written to it",
           "Check the disk, and merge again.");
    }
  }
  return file;
}

}  // namespace cleave
