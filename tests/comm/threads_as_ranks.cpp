#include <thread>

#include "cleave/comm/devices.h"
#include "cleave/comm/in_process.h"
#include "ranks.h"

namespace cleave {

int most_ranks() {
  return 8;
}

void on_ranks(int count, const std::function<void(Transport&)>& body) {
  InProcessHub hub(count, Seconds{60});
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const AloneOnItsThread alone;  // as a rank's device would have it
      body(*hub.connect({rank}));
    });
  }
}

}  // namespace cleave
