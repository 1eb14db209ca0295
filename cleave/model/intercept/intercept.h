#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace cleave {

// libtorch asks, operation by operation, which key of a thread comes first.
// This one stands before all back ends and autograd and has no other use:
// while an Intercept lives, operations registered for it come to us first, and
// every other one falls through at no cost.
inline constexpr c10::DispatchKey kInterceptKey =
    c10::DispatchKey::TESTING_ONLY_GenericMode;

// The keys that an intercepted operation calls next.
inline constexpr c10::DispatchKeySet kAfterIntercept(
    c10::DispatchKeySet::FULL_AFTER, kInterceptKey);

// Turns the key on for this thread while it lives. Nests.
class Intercept {
 public:
  Intercept();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace cleave
