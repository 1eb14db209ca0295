#pragma once

#include <compare>

// Counted things have types of their own, so that mixing them does not
// compile. All of them count from zero.
namespace cleave {

// One of those that train together; it owns one device.
struct Rank {
  int value = 0;
  auto operator<=>(const Rank&) const = default;
};

// A run of consecutive layers on one device.
struct StageId {
  int value = 0;
  auto operator<=>(const StageId&) const = default;
};

// One part of a step's batch.
struct Microbatch {
  int value = 0;
  auto operator<=>(const Microbatch&) const = default;
};

}  // namespace cleave
