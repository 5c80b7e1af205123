// Divides the CPUs of a host among its ranks: the number of threads of each rank, and the CPUs
// that each rank is pinned to.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// Identifies one of `count` ranks that share the same CPUs.
struct CpuPartition {
  std::int64_t index = 0, count = 1;
};

/// The system's number of a logical CPU, and its NUMA node, package and core.
struct LogicalCpu {
  int number = 0, node = 0, package = 0, core = 0;
};

/// Returns how many of the CPUs threads can keep busy under the quota of a control group, rounded
/// down, because a group that exceeds it is stopped for the rest of a period; at least 1. A quota
/// of 0 is none.
int cpus_within_quota(int cpus, double quota);

/// Returns OMP_NUM_THREADS if it is set, else the number of CPUs in one partition, of those within
/// the quota (control_groups.h); at least 1.
int intra_op_threads(const CpuPartition& partition);

/// Returns the CPU numbers of one partition. CPUs are ordered by NUMA node, package and core before
/// they are divided, so that the hardware threads of a core and the cores of a node stay together.
/// Partition sizes differ by at most one. The result is empty if there are fewer CPUs than ranks.
std::vector<int> cpus_of_partition(const CpuPartition& partition, std::vector<LogicalCpu> cpus);

/// Returns the numbers of the CPUs that this thread may run on.
std::vector<int> allowed_cpu_numbers();
/// Lets this thread, and all threads that it starts later, run on these CPUs. Has no effect if that
/// is forbidden, or without CPUs.
void allow_cpus(const std::vector<int>& numbers);

/// Pins this thread, and all threads that it starts later, to the CPUs of its partition. Ranks then
/// do not compete for CPUs and caches. Has no effect if there is only one rank, if there are more
/// ranks or threads than CPUs, or if OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set.
void set_cpu_affinity(const CpuPartition& partition);

/// Returns intra_op_threads() and, if `pins`, calls set_cpu_affinity(). Throws a UserError if so
/// many threads cannot start. A rank calls it once in each start of the run, before it computes. A
/// process that takes part in several starts calls allow_cpus() before each further one.
int bind_to_cpus(const CpuPartition& partition, bool pins);

}  // namespace megatron
