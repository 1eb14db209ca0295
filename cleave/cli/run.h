#pragma once

#include "cleave/checkpoint/run_folder.h"
#include "cleave/checkpoint/stages.h"
#include "cleave/cli/assemble.h"
#include "cleave/cli/launch/job.h"

namespace cleave {

// Everything a training run is made of, ready to start.
struct Run {
  Config config;
  TrainAndTest data;
  Model model;
  Devices devices;
  Plan plan;
};

// Loads the data, builds the model's description, measures and plans. Writes
// nothing; throws Error on anything that would stop the run later. Of several
// processes one plans for all.
Run prepare_run(const Config& config, Job& job);

// Makes the output folder and puts configuration, plan and drawing into it.
RunFolder open_run_folder(const Run& run);

// Trains, shows it, logs it, and saves the stages, also when interrupted. Of
// several processes only the one that leads has a folder, and shows anything.
FitResult train_run(const Run& run,
                    const std::optional<RunFolder>& folder,
                    Trainer& trainer,
                    bool quiet);

// Joins the saved stages of a run into one file, and checks it. Returns what
// was joined.
SavedStages merge_run(const RunFolder& folder,
                      const std::filesystem::path& file);

// Throws Error unless the file holds exactly these tensors, bit for bit.
// `whose` names them in the error.
void check_same_bits(const std::filesystem::path& file,
                     const TensorMap& expected,
                     const std::string& whose);

}  // namespace cleave
