#include "cleave/checkpoint/stages.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "cleave/atomic_file.h"
#include "cleave/error.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kFormat = "cleave-stages";
constexpr int kVersion = 1;

std::string file_of(size_t stage) {
  return "stage-" + std::to_string(stage) + ".safetensors";
}

nlohmann::json read_manifest(const fs::path& file) {
  std::ifstream in(file);
  if (!in) {
    fail("there are no saved stages: " + file.string() + " cannot be read",
         "Name the folder of a run that has trained.");
  }
  const std::string text(std::istreambuf_iterator<char>(in), {});
  nlohmann::json manifest = nlohmann::json::parse(text, nullptr, false);
  if (!manifest.is_object() || manifest.value("format", "") != kFormat ||
      manifest.value("version", 0) != kVersion) {
    fail(file.string() + " is no manifest of saved stages",
         "Train again; this version reads version " + std::to_string(kVersion) +
             ".");
  }
  return manifest;
}

// The stage's tensors, in the order the manifest lists them.
TensorMap in_order(const LoadedTensors& loaded,
                   const std::vector<std::string>& names,
                   const fs::path& file) {
  std::map<std::string, at::Tensor> by_name(loaded.tensors.begin(),
                                            loaded.tensors.end());
  TensorMap tensors;
  for (const std::string& name : names) {
    const auto found = by_name.extract(name);
    if (!found) {
      fail(file.string() + " lacks the tensor '" + name + "'",
           "Its manifest lists it: the files do not belong together.");
    }
    tensors.emplace_back(name, found.mapped());
  }
  if (!by_name.empty()) {
    fail(file.string() + " holds the tensor '" + by_name.begin()->first +
             "' that its manifest does not list",
         "The files do not belong together.");
  }
  return tensors;
}

}  // namespace

void save_stages(const SavedStages& saved, const fs::path& folder) {
  const fs::path temporary = folder.string() + ".tmp";
  remove_tree(temporary);
  fs::create_directories(temporary);
  nlohmann::ordered_json manifest{{"format", kFormat},
                                  {"version", kVersion},
                                  {"model", saved.model},
                                  {"step", saved.step},
                                  {"stages", nlohmann::json::array()}};
  for (size_t stage = 0; stage < saved.stages.size(); ++stage) {
    save_safetensors(saved.stages[stage], temporary / file_of(stage));
    std::vector<std::string> names;
    for (const auto& [name, tensor] : saved.stages[stage]) {
      names.push_back(name);
    }
    manifest["stages"].push_back(
        {{"file", file_of(stage)}, {"tensors", names}});
  }
  write_file_atomically(temporary / kManifest, manifest.dump(2) + "\n");
  remove_tree(folder);
  fs::rename(temporary, folder);
}

SavedStages load_stages(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  const nlohmann::json manifest = read_manifest(file);
  SavedStages saved;
  try {
    saved.model = manifest.at("model").get<std::string>();
    saved.step = manifest.at("step").get<std::int64_t>();
    for (const nlohmann::json& stage : manifest.at("stages")) {
      // The name is known, so a manifest cannot point outside its folder.
      const fs::path part = folder / file_of(saved.stages.size());
      saved.stages.push_back(
          in_order(load_safetensors(part),
                   stage.at("tensors").get<std::vector<std::string>>(),
                   part));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(file.string() + " is damaged: " + error.what(), "Train again.");
  }
  return saved;
}

TensorMap merge(const SavedStages& saved) {
  TensorMap merged;
  std::set<std::string> names;
  for (const TensorMap& stage : saved.stages) {
    for (const auto& [name, tensor] : stage) {
      if (!names.insert(name).second) {
        fail("two stages hold the tensor '" + name + "'",
             "The stages are not of one run.");
      }
      merged.emplace_back(name, tensor);
    }
  }
  return merged;
}

}  // namespace cleave
