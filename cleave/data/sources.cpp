#include "cleave/data/sources.h"

#include <array>
#include <string>

#include "cleave/data/fashion_mnist.h"
#include "cleave/error.h"

namespace cleave {
namespace {

TrainAndTest synthetic(const DataOptions& options) {
  return {make_synthetic(options.synthetic, Split::train),
          make_synthetic(options.synthetic, Split::test)};
}

TrainAndTest fashion_mnist(const DataOptions& options) {
  const std::filesystem::path folder =
      options.folder.empty() ? kFashionMnistFolder : options.folder;
  return {load_fashion_mnist(Split::train, folder, options.limit),
          load_fashion_mnist(Split::test, folder, options.limit)};
}

constexpr std::array kSources{
    DataSource{"synthetic", synthetic},
    DataSource{"fashion-mnist", fashion_mnist},
};

}  // namespace

std::span<const DataSource> data_sources() {
  return kSources;
}

TrainAndTest load_data(std::string_view name, const DataOptions& options) {
  std::string known;
  for (const DataSource& source : kSources) {
    if (source.name == name) {
      return source.load(options);
    }
    known += (known.empty() ? "" : ", ") + std::string(source.name);
  }
  fail("unknown data source '" + std::string(name) + "'",
       "Use one of: " + known + ".");
}

}  // namespace cleave
