#include "cleave/model/families/families.h"

#include <array>

#include "cleave/error.h"

namespace cleave {
namespace {

constexpr std::array kFamilies{
    Family{"mlp", mlp},
    Family{"convnet", convnet},
    Family{"resnet", resnet},
    Family{"gpt", gpt},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

Model make_model(std::string_view name, const FamilyOptions& options) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == name) {
      return family.make(options);
    }
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  fail("there is no model family called '" + std::string(name) + "'",
       "Known are " + known + ".");
}

}  // namespace cleave
