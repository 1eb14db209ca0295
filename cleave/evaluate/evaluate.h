#pragma once

#include <filesystem>
#include <optional>

#include "cleave/data/dataset.h"
#include "cleave/model/loss.h"
#include "cleave/model/model.h"

// Judges a merged model on one device. Shares no code with train/, so a bug
// there cannot hide here.
namespace cleave {

struct Judgement {
  double loss = 0;
  std::optional<double> accuracy;  // where the data has classes
  std::int64_t samples = 0;
};

// Builds the whole network, loads the weights from a safetensors file, and
// passes all samples through it, `batch` at a time. Throws Error when the file
// is damaged or of another model.
Judgement judge_file(const Model& model,
                     const std::filesystem::path& weights,
                     const Dataset& data,
                     const Loss& loss,
                     std::int64_t batch);

}  // namespace cleave
