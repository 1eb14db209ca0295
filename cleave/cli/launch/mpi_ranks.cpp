#include "cleave/cli/launch/mpi_ranks.h"

#include <charconv>
#include <string_view>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr int kMaxRanks = 4096;

}  // namespace

std::optional<int> mpi_ranks(const std::string& use) {
  if (use == "mpi") {
    return 0;
  }
  constexpr std::string_view kPrefix = "mpi:";
  if (!use.starts_with(kPrefix)) {
    return std::nullopt;
  }
  int count = 0;
  const char* const end = use.data() + use.size();
  const auto read = std::from_chars(use.data() + kPrefix.size(), end, count);
  if (read.ec != std::errc() || read.ptr != end || count < 1 ||
      count > kMaxRanks) {
    fail("'" + use + "' names no devices",
         "Write mpi:N for N ranks, N from 1 to " + std::to_string(kMaxRanks) +
             ", or mpi for those that a launcher started.");
  }
  return count;
}

}  // namespace cleave
