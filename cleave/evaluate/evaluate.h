#pragma once

#include <filesystem>

#include "cleave/data/dataset.h"
#include "cleave/event.h"
#include "cleave/model/loss.h"
#include "cleave/model/model.h"

// Evaluates a merged model on one device. Shares no code with train/, so a bug
// there cannot hide here.
namespace cleave {

// Builds the whole network, loads the weights from a safetensors file, and
// passes all samples through it, `batch` at a time. Throws Error when the file
// is damaged or of another model.
Evaluation evaluate_file(const Model& model,
                         const std::filesystem::path& weights,
                         const Dataset& data,
                         const Loss& loss,
                         std::int64_t batch);

}  // namespace cleave
