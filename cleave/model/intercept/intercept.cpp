#include "cleave/model/intercept/intercept.h"

#include <torch/library.h>

namespace cleave {
namespace {

void install_fallthrough() {
  static torch::Library fallthrough(
      torch::Library::IMPL, "_", kInterceptKey, __FILE__, __LINE__);
  static const bool installed = [] {
    fallthrough.fallback(torch::CppFunction::makeFallthrough());
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

Intercept::Intercept() : guard_((install_fallthrough(), kInterceptKey)) {}

}  // namespace cleave
