#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "cleave/data/dataset.h"
#include "cleave/data/synthetic.h"

namespace cleave {

// What a source may need to know; each reads only its own part.
struct DataOptions {
  SyntheticOptions synthetic = {};

  // Of a source that reads files. Empty: where its package puts them.
  std::filesystem::path folder = {};

  // The most samples a source that reads files takes of each split; 0: all.
  std::int64_t limit = 0;
};

struct TrainAndTest {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
};

// One row of the table of sources; docs/how_to_add_a_data_source.md.
struct DataSource {
  std::string_view name;
  TrainAndTest (*load)(const DataOptions& options);
};

std::span<const DataSource> data_sources();

// Throws Error that lists the known names where there is no such source.
TrainAndTest load_data(std::string_view name, const DataOptions& options = {});

}  // namespace cleave
