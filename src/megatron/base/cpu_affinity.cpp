#include "megatron/base/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "megatron/base/control_groups.h"
#include "megatron/base/machine.h"
#include "megatron/base/thread_limit.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

int number_in(const fs::path& file) {
  int number = 0;
  std::ifstream(file) >> number;
  return number;
}

/// Returns the NUMA node of a CPU's folder in /sys, or 0 if it is unknown.
int numa_node_of(const fs::path& cpu_folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cpu_folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node")) return std::atoi(name.c_str() + 4);
  }
  return 0;
}

std::vector<LogicalCpu> allowed_cpus() {
  std::vector<LogicalCpu> found;
  for (const int number : allowed_cpu_numbers()) {
    const fs::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(number);
    found.push_back({number, numa_node_of(folder),
                     number_in(folder / "topology/physical_package_id"),
                     number_in(folder / "topology/core_id")});
  }
  return found;
}

bool user_sets_affinity() {
  return std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("OMP_PLACES") != nullptr ||
         std::getenv("GOMP_CPU_AFFINITY") != nullptr;
}

}  // namespace

std::vector<int> allowed_cpu_numbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> found;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) found.push_back(number);
  }
  return found;
}

void allow_cpus(const std::vector<int>& numbers) {
  if (numbers.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(number, &set);
  // The result is ignored: if it is forbidden, the system places the threads.
  ::sched_setaffinity(0, sizeof set, &set);
}

int cpus_within_quota(int cpus, double quota) {
  return quota > 0 ? std::max(1, static_cast<int>(std::min<double>(cpus, quota))) : cpus;
}

int intra_op_threads(const CpuPartition& partition) {
  if (const char* given = std::getenv("OMP_NUM_THREADS")) {
    const int threads = std::atoi(given);
    if (threads > 0) return threads;
  }
  return std::max(
      1, cpus_within_quota(num_cpus(), cgroup_cpu_quota()) / static_cast<int>(partition.count));
}

std::vector<int> cpus_of_partition(const CpuPartition& partition, std::vector<LogicalCpu> cpus) {
  const auto place = [](const LogicalCpu& p) {
    return std::tuple(p.node, p.package, p.core, p.number);
  };
  std::sort(cpus.begin(), cpus.end(),
            [&](const LogicalCpu& a, const LogicalCpu& b) { return place(a) < place(b); });
  const auto all = static_cast<std::int64_t>(cpus.size());
  std::vector<int> numbers;
  if (all < partition.count) return numbers;
  for (std::int64_t i = partition.index * all / partition.count;
       i < (partition.index + 1) * all / partition.count; ++i)
    numbers.push_back(cpus[static_cast<std::size_t>(i)].number);
  return numbers;
}

void set_cpu_affinity(const CpuPartition& partition) {
  if (partition.count == 1 || user_sets_affinity()) return;
  const std::vector<int> numbers = cpus_of_partition(partition, allowed_cpus());
  if (static_cast<int>(numbers.size()) < intra_op_threads(partition)) return;
  allow_cpus(numbers);
}

int bind_to_cpus(const CpuPartition& partition, bool pins) {
  // Count the CPUs before pinning reduces them to this rank's partition.
  const int threads = intra_op_threads(partition);
  // LibTorch's pool and OpenMP's, each of which includes this thread.
  check_threads_start(std::int64_t{2} * (threads - 1));
  if (pins) set_cpu_affinity(partition);
  return threads;
}

}  // namespace megatron
