#include <iostream>
#include <nlohmann/json.hpp>

#include "cleave/cli/run.h"
#include "cleave/cli/verbs.h"
#include "cleave/counted.h"

namespace cleave {
namespace {

struct MergeArguments {
  std::string run;
  std::string output;
  bool json = false;
};

void merge_stages(const MergeArguments& arguments) {
  const RunFolder folder = RunFolder::open(arguments.run);
  const std::filesystem::path file =
      arguments.output.empty() ? folder.model()
                               : std::filesystem::path(arguments.output);
  const SavedStages saved = merge_run(folder, file);
  size_t tensors = 0;
  for (const TensorMap& stage : saved.stages) {
    tensors += stage.size();
  }
  const Bytes size{static_cast<std::int64_t>(std::filesystem::file_size(file))};
  if (arguments.json) {
    const nlohmann::ordered_json report{{"file", file.string()},
                                        {"stages", saved.stages.size()},
                                        {"tensors", tensors},
                                        {"bytes", size.value},
                                        {"step", saved.step}};
    std::cout << report.dump(2) << '\n';
    return;
  }
  std::cout << "Merged " << counted(std::ssize(saved.stages), "stage") << " ("
            << tensors << " tensors, " << to_text(size) << ", step "
            << saved.step << ") into " << file.string()
            << "; read back, bit for bit equal.\n"
            << "Next: cleave evaluate " << folder.config().string()
            << " --model " << file.string() << '\n';
}

}  // namespace

void add_merge(CLI::App& program) {
  auto arguments = std::make_shared<MergeArguments>();
  CLI::App* verb = program.add_subcommand(
      "merge", "Join the trained stages of a run into one file");
  verb->add_option("RUN", arguments->run, "Folder that cleave train wrote")
      ->required();
  verb->add_option("--output",
                   arguments->output,
                   "File to write; default: RUN/model.safetensors");
  verb->add_flag("--json", arguments->json, "Print JSON");
  verb->callback([arguments] { merge_stages(*arguments); });
}

}  // namespace cleave
