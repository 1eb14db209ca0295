#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cleave/checkpoint/safetensors.h"

namespace cleave {

// The trained stages of a run on disk: one safetensors file each, and a
// manifest that says what belongs together.
struct SavedStages {
  std::string model;
  std::int64_t step = 0;          // how far training had come
  std::vector<TensorMap> stages;  // in the order of the pipeline
};

// Writes the folder as a whole: it appears only when everything is in it. A
// folder of that name from before is replaced.
void save_stages(const SavedStages& saved, const std::filesystem::path& folder);

// Reads the folder back. Throws Error when the manifest and the files do not
// agree in every name.
SavedStages load_stages(const std::filesystem::path& folder);

// All stages' tensors in the order of the layers, under the names the unsplit
// network has. Throws Error when two stages hold the same name.
TensorMap merge(const SavedStages& saved);

}  // namespace cleave
