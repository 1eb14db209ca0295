#include "cleave/error.h"

#include <utility>

namespace cleave {

Error::Error(const std::string& problem,
             std::string fix,
             const char* file,
             int line)
    : std::runtime_error(fix.empty() ? problem + "." : problem + ". " + fix),
      problem_(problem),
      fix_(std::move(fix)),
      where_(std::string(file) + ":" + std::to_string(line)) {}

void fail(const std::string& problem,
          const std::string& fix,
          const char* file,
          int line) {
  throw Error(problem, fix, file, line);
}

}  // namespace cleave
