// The eight steps, by name and in order.
#include <iomanip>
#include <iostream>
#include <thread>

#include "cleave/cli/interrupt.h"
#include "cleave/cli/run.h"
#include "cleave/cli/show_plan.h"
#include "cleave/cli/verbs.h"
#include "cleave/data/microbatches.h"
#include "cleave/data/order.h"
#include "cleave/error.h"
#include "cleave/evaluate/evaluate.h"
#include "cleave/plan/measure/measured_plan.h"
#include "cleave/train/one_device.h"

namespace cleave {
namespace {

constexpr const char* kDefaultFolder = "runs/quickstart";

struct QuickstartArguments {
  std::string directory = kDefaultFolder;
  std::string use = DevicesConfig{}.use;
};

void heading(int number, const char* title) {
  std::cout << "\nStep " << number << " of 8: " << title << "\n\n";
}

Config quickstart_config(const QuickstartArguments& arguments) {
  Config config;
  config.model = {.width = 256, .depth = 6, .dropout = 0.1};
  config.data = {.samples = 8192, .test_samples = 2048};
  config.devices.use = arguments.use;
  config.parallel.microbatches = 8;
  config.train.epochs = 4;
  config.output = {.directory = arguments.directory,
                   // Trying it twice must work; other folders are the user's.
                   .overwrite = arguments.directory == kDefaultFolder};
  return config;
}

void show_environment(const Devices& devices) {
  const Machine machine = this_machine();
  std::cout << "  " << machine.processor << ", " << machine.cores.size()
            << " cores, " << to_text(machine.memory) << " of memory, "
            << machine.gpus << " GPUs, libtorch " << machine.libtorch
            << "\n  Devices found:";
  for (const Device& device : devices) {
    std::cout << "  " << device.name << " (" << device.threads
              << (device.threads == 1 ? " core)" : " cores)");
  }
  std::cout << '\n';
}

void show_segments(const Model& model) {
  std::cout << "  The network \"" << model.name() << "\" is described once, as "
            << model.size() << " named layers; none is built yet:\n  ";
  size_t column = 2;
  for (const std::string& name : model.layer_names()) {
    if (column + name.size() + 2 > 78) {
      std::cout << "\n  ";
      column = 2;
    }
    std::cout << name << "  ";
    column += name.size() + 2;
  }
  std::cout << "\n  A segment (Cleave says stage) is a run of consecutive "
               "layers on one device;\n  a cut may fall between any two of "
               "them.\n";
}

void show_shards(const Run& run) {
  const std::int64_t batch = run.plan.batch;
  const BatchOrder order(
      run.data.train->size(),
      batch,
      0,
      {.seed = static_cast<std::uint64_t>(run.config.train.seed)});
  std::cout << "  " << run.data.train->size() << " samples, shuffled with seed "
            << run.config.train.seed << ", in " << order.steps()
            << " batches of " << batch << " per epoch.\n  Each batch is split "
            << "into microbatches of";
  for (const std::int64_t size :
       microbatch_sizes(batch, run.plan.schedule.microbatches)) {
    std::cout << ' ' << size;
  }
  std::cout << ".\n  Epoch 1 begins with samples";
  for (const std::int64_t index : order.indices(0).first(6)) {
    std::cout << ' ' << index;
  }
  std::cout << " …\n  "
            << run.plan.devices[run.plan.stages.front().rank.value].name
            << " reads the inputs, "
            << run.plan.devices[run.plan.stages.back().rank.value].name
            << " the targets.\n";
}

// The same training in a plain loop on one device.
OneDeviceRun reference_of(const Run& run) {
  const Training training =
      training_of(run.config, *run.data.train, run.plan.batch);
  std::vector<Batch> batches;
  for (std::int64_t epoch = 0; epoch < run.config.train.epochs; ++epoch) {
    const BatchOrder order(
        run.data.train->size(), run.plan.batch, epoch, {.seed = training.seed});
    for (std::int64_t step = 0; step < order.steps(); ++step) {
      batches.push_back(run.data.train->get(order.indices(step)));
    }
  }
  OneDeviceRun result;
  std::thread([&] {
    bind_to(run.devices.front());
    result = train_on_one_device(
        run.model, batches, run.plan.schedule.microbatches, training);
  }).join();
  return result;
}

void compare(const std::filesystem::path& file,
             const NamedTensors& expected,
             const std::string& whose) {
  check_same_bits(file, expected, whose);
  std::int64_t values = 0;
  for (const auto& [name, tensor] : expected) {
    values += tensor.numel();
  }
  std::cout << "  Compared with " << whose << ": all " << expected.size()
            << " tensors, " << values << " values, equal bit for bit.\n";
}

void evaluate_file(const Run& run, const std::filesystem::path& file) {
  const Evaluation found = evaluate_file(run.model,
                                         file,
                                         *run.data.test,
                                         loss_of(run.config, *run.data.train),
                                         run.config.train.batch);
  std::cout << "  " << found.samples
            << " test samples, on one device, by code that shares only the "
               "layers with\n  training: loss "
            << std::fixed << std::setprecision(4) << found.loss << ", accuracy "
            << *found.accuracy << '\n';
}

void farewell(const RunFolder& folder, const std::filesystem::path& file) {
  const std::string path = folder.path().string();
  std::cout << "\nDone. In " << path << ":\n"
            << "  model.safetensors   the merged model\n"
            << "  stages/             the segments it was merged from\n"
            << "  plan.json           the plan; edit it and train with it\n"
            << "  schedule.svg        the schedule, drawn\n"
            << "  log.jsonl           one line per step\n"
            << "  config.toml         the configuration of this run\n"
            << "What to try next:\n"
            << "  cleave evaluate " << path << "/config.toml --model "
            << file.string() << '\n'
            << "  cleave plan " << path
            << "/config.toml --devices.use cpu:4 --parallel.schedule gpipe\n"
            << "  cleave train examples/fashion_mnist.toml\n";
}

// Steps 1 to 5: everything that writes nothing yet.
Run prepare(const Config& config) {
  heading(1, "environment (devices found)");
  Devices devices = devices_of(config);
  show_environment(devices);

  heading(2, "synthetic data");
  TrainAndTest data = data_of(config);
  std::cout << "  Training: " << data.train->description()
            << "\n  Test:     " << data.test->description() << '\n';

  heading(3, "segments defined");
  Model model = model_of(config, *data.train);
  show_segments(model);

  heading(4, "strategy chosen");
  Plan plan = plan_of(config, model, *data.train, devices);
  std::cout << plan_text(plan);

  heading(5, "dataset split and prepared");
  Run run{config,
          std::move(data),
          std::move(model),
          std::move(devices),
          std::move(plan)};
  show_shards(run);
  stop_if_interrupted();
  return run;
}

void walk(const QuickstartArguments& arguments) {
  interrupt_flag();  // from here on Ctrl-C ends in good order
  const Config config = quickstart_config(arguments);
  RunFolder::check_free(config.output.directory, config.output.overwrite);
  std::cout << "Cleave trains one network on several devices, in eight "
               "steps.\n";
  const Run run = prepare(config);

  heading(6, "segments trained in parallel");
  std::cout << std::flush;
  Trainer trainer(run.model,
                  run.plan,
                  run.devices,
                  training_of(config, *run.data.train, run.plan.batch));
  const RunFolder folder = open_run_folder(run);
  if (train_run(run, folder, trainer, /*quiet=*/false).interrupted) {
    fail("interrupted",
         "The stages so far are in " + folder.path().string() + "/stages.");
  }

  heading(7, "segments merged");
  const std::filesystem::path file = folder.model();
  merge_run(folder, file);
  std::cout << "  Merged " << run.plan.stages.size() << " segments into "
            << file.string() << ".\n";
  compare(file, trainer.merged(), "the trained segments");
  std::cout << "  Training the same on one device, to compare …" << std::endl;
  compare(file, reference_of(run).state, "a one-device run");

  heading(8, "final model evaluated");
  evaluate_file(run, file);
  farewell(folder, file);
}

}  // namespace

void add_quickstart(CLI::App& program) {
  auto arguments = std::make_shared<QuickstartArguments>();
  CLI::App* verb = program.add_subcommand(
      "quickstart", "Walk through the eight steps on synthetic data");
  verb->add_option("--output", arguments->directory, "Folder for the results")
      ->capture_default_str();
  verb->add_option("--use", arguments->use, "Devices: cpu:N")
      ->capture_default_str();
  verb->callback([arguments] { walk(*arguments); });
}

}  // namespace cleave
