#include "megatron/base/processor_share.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "megatron/base/machine.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

int number_in(const fs::path& file) {
  int number = 0;
  std::ifstream(file) >> number;
  return number;
}

/// 0 where the system does not say.
int node_of(const fs::path& processor) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(processor, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node")) return std::atoi(name.c_str() + 4);
  }
  return 0;
}

std::vector<Processor> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<Processor> found;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &set)) continue;
    const fs::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(number);
    found.push_back({number, node_of(folder), number_in(folder / "topology/physical_package_id"), number_in(folder / "topology/core_id")});
  }
  return found;
}

bool user_decides() {
  return std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("OMP_PLACES") != nullptr || std::getenv("GOMP_CPU_AFFINITY") != nullptr;
}

}  // namespace

int num_threads_of(const ProcessorShare& share) {
  if (const char* given = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(given);
    if (threads > 0) return threads;
  }
  return std::max(1, num_processors() / static_cast<int>(share.count));
}

std::vector<int> processors_of(const ProcessorShare& share, std::vector<Processor> processors) {
  const auto place = [](const Processor& p) { return std::tuple(p.node, p.package, p.core, p.number); };
  std::sort(processors.begin(), processors.end(), [&](const Processor& a, const Processor& b) { return place(a) < place(b); });
  const auto all = static_cast<std::int64_t>(processors.size());
  std::vector<int> numbers;
  if (all < share.count) return numbers;
  for (std::int64_t i = share.index * all / share.count; i < (share.index + 1) * all / share.count; ++i)
    numbers.push_back(processors[static_cast<std::size_t>(i)].number);
  return numbers;
}

void pin_to(const ProcessorShare& share) {
  if (share.count == 1 || user_decides()) return;
  const std::vector<int> numbers = processors_of(share, allowed_processors());
  if (static_cast<int>(numbers.size()) < num_threads_of(share)) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(number, &set);
  ::sched_setaffinity(0, sizeof set, &set);  // where it is forbidden, ranks run wherever the system puts them, as without it
}

int take_share(const ProcessorShare& share, bool pins) {
  const int threads = num_threads_of(share);  // before pinning leaves only this rank's share to count
  if (pins) pin_to(share);
  return threads;
}

}  // namespace megatron
