#include "cleave/mesh.h"

namespace cleave {

std::vector<Rank> Mesh::pipeline_of(Rank rank) const {
  std::vector<Rank> members;
  members.reserve(places);
  for (int place = 0; place < places; ++place) {
    members.push_back({replica_of(rank) * places + place});
  }
  return members;
}

std::vector<Rank> Mesh::mirrors_of(Rank rank) const {
  std::vector<Rank> members;
  members.reserve(replicas);
  for (int replica = 0; replica < replicas; ++replica) {
    members.push_back({replica * places + place_of(rank).value});
  }
  return members;
}

}  // namespace cleave
