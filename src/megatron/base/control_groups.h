// The limits of the control groups (cgroups) that this process is in. A container's limits are
// such; nothing else that the system says of memory and CPUs shows them.
#pragma once

#include <filesystem>

namespace megatron {

/// Where the groups of a process are listed, and where their files are.
struct ControlGroups {
  std::filesystem::path list = "/proc/self/cgroup", root = "/sys/fs/cgroup";
};

/// Returns the smallest limit, in bytes, of the process's group and its parents (cgroup v2, and the
/// memory controller of v1); 0: there is none.
double cgroup_memory_limit(const ControlGroups& groups = {});

/// Likewise, returns how many CPUs the processes of a group may keep busy, such as 1.5 (cpu.max, or
/// cpu.cfs_quota_us of v1); 0: there is no limit.
double cgroup_cpu_quota(const ControlGroups& groups = {});

}  // namespace megatron
