#include <thread>

#include "cleave/comm/thread_world.h"
#include "cleave/device/device.h"
#include "ranks.h"

namespace cleave {

int most_ranks() {
  return 8;
}

void on_ranks(int count, const std::function<void(Transport&)>& body) {
  ThreadWorld world(count, Seconds{60});
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      const SingleThreadScope alone;  // as a rank's device would have it
      body(*world.connect({rank}));
    });
  }
}

}  // namespace cleave
