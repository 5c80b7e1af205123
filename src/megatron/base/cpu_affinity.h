// How the ranks of a host share its processors: so many threads for each, and each on CPUs of its
// own.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// One of `count` ranks that may run on the same processors.
struct CpuPartition {
  std::int64_t index = 0, count = 1;
};

/// A CPU as the system numbers it, and where it is.
struct LogicalCpu {
  int number = 0, node = 0, package = 0, core = 0;
};

/// OMP_NUM_THREADS, or as many as there are processors in one share; at least 1.
int intra_op_threads(const CpuPartition& share);

/// The numbers of one share: neighbours, by memory node, package and core, so that two threads of a
/// core, and cores next to one memory, stay with one rank. Shares differ by one processor at most;
/// empty where there are fewer processors than ranks.
std::vector<int> cpus_of_partition(const CpuPartition& share, std::vector<LogicalCpu> processors);

/// Keeps this thread, and all that it starts later, to its rank's share: ranks then neither wait
/// for each other's threads nor empty each other's caches. Without effect on a rank that shares
/// with none, where ranks or threads are more than the CPUs, and where the user has decided
/// (OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set).
void set_cpu_affinity(const CpuPartition& share);

/// What a rank does before it computes: intra_op_threads() the CPUs that all of them may run on,
/// and with `pins` set_cpu_affinity() afterwards.
int bind_to_cpus(const CpuPartition& share, bool pins);

}  // namespace megatron
