#pragma once

#include <vector>

#include "cleave/ids.h"

namespace cleave {

// Replicas x places: every replica is a whole pipeline, with one rank in each
// of its places. The ranks of a replica follow each other.
struct Mesh {
  int replicas = 1;
  int places = 1;

  int ranks() const { return replicas * places; }
  int replica_of(Rank rank) const { return rank.value / places; }
  Rank place_of(Rank rank) const { return {rank.value % places}; }

  // The ranks of the rank's own pipeline, by place.
  std::vector<Rank> pipeline_of(Rank rank) const;

  // The ranks in the rank's own place, by replica.
  std::vector<Rank> mirrors_of(Rank rank) const;
};

}  // namespace cleave
