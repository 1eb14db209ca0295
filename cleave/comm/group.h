#pragma once

#include <memory>
#include <vector>

#include "cleave/comm/transport.h"

namespace cleave {

// Some of the ranks of a transport as a transport of their own: the member in
// place i is its rank i. Two ranks may share several groups as long as these
// use different tags. REQUIRES: the own rank is a member. Borrows the
// transport, which must outlive it.
std::unique_ptr<Transport> group_of(Transport& all, std::vector<Rank> members);

}  // namespace cleave
