#pragma once

#include <stdexcept>
#include <string>

namespace cleave {

// The one exception of the library: what is wrong, and what to change.
// what() gives both, as sentences a person can act on.
class Error : public std::runtime_error {
 public:
  Error(const std::string& problem,
        std::string fix,
        const char* file = "",
        int line = 0);

  const std::string& problem() const { return problem_; }
  const std::string& fix() const { return fix_; }

  // Where in the library it was thrown, as "file:line": for bug reports.
  const std::string& where() const { return where_; }

 private:
  std::string problem_;
  std::string fix_;
  std::string where_;
};

// Throws Error. `problem` is a sentence without its full stop; `fix` is one
// with it, or empty where nothing can be changed.
[[noreturn]] void fail(const std::string& problem,
                       const std::string& fix,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());

}  // namespace cleave
