#include "megatron/base/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace megatron {

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

int num_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

int num_threads_of_rank(std::int64_t num_ranks) {
  if (const char* given = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(given);
    if (threads > 0) return threads;
  }
  return std::max(1, num_processors() / static_cast<int>(num_ranks));
}

}  // namespace megatron
