#include "cleave/cli/run.h"

#include <torch/types.h>

#include <iostream>

#include "cleave/atomic_file.h"
#include "cleave/cli/interrupt.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/terminal.h"
#include "cleave/error.h"
#include "cleave/event.h"
#include "cleave/plan/predict.h"
#include "cleave/report/console.h"
#include "cleave/report/jsonl.h"
#include "cleave/report/timeline_page.h"
#include "cleave/report/trace.h"

namespace cleave {

namespace {

// Enough of the data to distinguish different data.
std::string fingerprint_of(const Dataset& data) {
  const std::int64_t count = std::min<std::int64_t>(data.size(), 64);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) {
    indices.push_back(i * data.size() / count);
  }
  const Batch samples = data.get(indices);
  return data.description() + ", " +
         std::to_string(samples.inputs.to(at::kDouble).sum().item<double>()) +
         ", " +
         std::to_string(samples.targets.to(at::kDouble).sum().item<double>());
}

Plan agreed_plan(const Config& config,
                 const Model& model,
                 const Dataset& data,
                 const Devices& devices,
                 Job& job) {
  if (!job.leads()) {
    return parse_plan(job.leaders(""), "the plan of rank 0");
  }
  Plan plan = plan_of(config, model, data, devices, job.messages());
  stop_if_interrupted();
  job.leaders(to_json(plan));
  return plan;
}

}  // namespace

Run prepare_run(const Config& config, Job& job) {
  if (job.leads()) {
    RunFolder::check_free(config.output.directory, config.output.overwrite);
  }
  job.check_alike(
      "versions",
      "cleave " CLEAVE_VERSION ", libtorch " + this_machine().libtorch);
  job.check_alike("configurations", to_toml(config));
  Devices devices = job.devices(config);
  TrainAndTest data = data_of(config);
  job.check_alike(
      "data", fingerprint_of(*data.train) + "\n" + fingerprint_of(*data.test));
  Model model = model_of(config, *data.train);
  stop_if_interrupted();
  Plan plan = agreed_plan(config, model, *data.train, devices, job);
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

namespace {

// The traced steps for Perfetto, and the last of them as a page.
void save_timelines(const Run& run,
                    const RunFolder& folder,
                    const std::vector<StepTimeline>& timelines) {
  if (timelines.empty()) {
    return;
  }
  std::vector<std::string> devices;
  for (const PlannedDevice& device : run.plan.devices) {
    devices.push_back(device.name);
  }
  std::vector<StepTrace> steps;
  steps.reserve(timelines.size());
  for (const StepTimeline& timeline : timelines) {
    steps.push_back({timeline.step, timeline.measured, timeline.zero});
  }
  write_file_atomically(folder.trace(), trace_json(steps, devices));
  const StepTimeline& last = timelines.back();
  StepComparison page{.title = run.plan.model + ", " + run.plan.schedule_name +
                               ", step " + std::to_string(last.step),
                      .predicted = {},
                      .measured = last.measured,
                      .devices = devices};
  if (run.plan.prediction) {
    page.predicted = predicted_timeline(run.plan);
  }
  write_file_atomically(folder.timeline(), timeline_page(page));
}

}  // namespace

namespace {

FitResult train_and_save(const Run& run,
                         const RunFolder& folder,
                         Trainer& trainer,
                         const FitOptions& options,
                         bool quiet) {
  const ConsoleOptions look = console_options();
  // A bar belongs to the terminal; lines belong with the other output.
  ConsoleSink console(
      look.terminal || quiet ? std::cerr : std::cout, look, now);
  JsonlSink log(folder.log(), JsonlSink::Mode::truncate);
  FanOutSink events({&console, &log});
  FitResult result = trainer.fit(*run.data.train, options, events);
  save_stages({.model = run.model.name(),
               .step = result.steps,
               .stages = trainer.stages()},
              folder.stages());
  save_timelines(run, folder, result.timelines);
  return result;
}

}  // namespace

FitResult train_run(const Run& run,
                    const std::optional<RunFolder>& folder,
                    Trainer& trainer,
                    bool quiet) {
  FitOptions options = fit_options_of(run.config, run.data.test.get());
  options.stop = &interrupt_flag();
  if (folder) {
    return train_and_save(run, *folder, trainer, options, quiet);
  }
  FitResult result = trainer.fit(*run.data.train, options);
  trainer.stages();  // for the one that saves them
  return result;
}

SavedStages merge_run(const RunFolder& folder,
                      const std::filesystem::path& file) {
  SavedStages saved = load_stages(folder.stages());
  const TensorMap merged = merge(saved);
  save_safetensors(merged, file);
  check_same_bits(file, merged, "the saved stages");
  return saved;
}

void check_same_bits(const std::filesystem::path& file,
                     const TensorMap& expected,
                     const std::string& whose) {
  const LoadedTensors loaded = load_safetensors(file);
  std::map<std::string, at::Tensor> found(loaded.tensors.begin(),
                                          loaded.tensors.end());
  std::string different;
  for (const auto& [name, tensor] : expected) {
    const auto entry = found.extract(name);
    if (!entry || !torch::equal(entry.mapped(), tensor)) {
      different = name;
    }
  }
  if (!found.empty()) {
    different = found.begin()->first;
  }
  if (!different.empty()) {
    fail(file.string() + " differs from " + whose + " in " + different,
         "Check the disk, and merge again; if that does not help, report it.");
  }
}

}  // namespace cleave
