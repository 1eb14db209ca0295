#include "cleave/checkpoint/run_folder.h"

#include <system_error>
#include <utility>

#include "cleave/atomic_file.h"
#include "cleave/error.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

}  // namespace

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {}

void RunFolder::check_free(const fs::path& path, bool overwrite) {
  if (fs::exists(path) && !fs::is_directory(path)) {
    fail("the output folder " + path.string() + " is a file",
         "Name another with output.directory.");
  }
  if (fs::exists(RunFolder(path).config()) && !overwrite) {
    fail("the output folder " + path.string() + " holds another run",
         "Name another with output.directory, or replace that run with "
         "output.overwrite = true.");
  }
}

RunFolder RunFolder::create(const fs::path& path, bool overwrite) {
  check_free(path, overwrite);
  RunFolder run(path);
  std::error_code problem;
  fs::create_directories(path, problem);
  if (problem) {
    fail("the output folder " + path.string() +
             " cannot be made: " + problem.message(),
         "Name another with output.directory.");
  }
  for (const fs::path& file : {run.config(),
                               run.plan(),
                               run.log(),
                               run.schedule(),
                               run.trace(),
                               run.timeline(),
                               run.stages(),
                               run.model()}) {
    remove_tree(file);
  }
  return run;
}

RunFolder RunFolder::open(const fs::path& path) {
  RunFolder run(path);
  if (!fs::exists(run.config())) {
    fail("there is no run in " + path.string(),
         "Name a folder that cleave train has written.");
  }
  return run;
}

}  // namespace cleave
