// What the system lets this process use of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace megatron {

/// Returns a value of /proc/self/status, such as "VmHWM:", in bytes; 0 when absent.
double process_status(std::string_view key);

/// Returns a value of /proc/meminfo, such as "MemTotal:", in bytes; 0 when absent.
double machine_memory(std::string_view key);

/// Memory limits of this process and what it holds now, in bytes. A limit of 0 means that there is
/// none or that it is unknown.
struct MemoryLimits {
  double address_space = 0;                          ///< RLIMIT_AS (ulimit -v)
  double data = 0;                                   ///< RLIMIT_DATA (ulimit -d)
  double reserved_addresses = 0, reserved_data = 0;  ///< what counts against these two now
  double resident = 0;      ///< memory that the process has touched, with pages of files
  double thread_stack = 0;  ///< addresses that a new thread reserves
  double cgroup = 0;        ///< the smallest memory.max of its control groups
  double machine = 0, available = 0;
  double device = 0;       ///< total memory of the GPU
  double device_free = 0;  ///< what no process holds of it
};

/// Returns the limits without those of a GPU.
MemoryLimits host_memory_limits();

/// Returns the memory that the process may use under ulimit -v and ulimit -d, which also count what
/// it reserves and does not use: code that is not read, and stacks of threads. nullopt: they are
/// not set.
std::optional<double> usable_under_ulimits(const MemoryLimits& limits);

/// Returns the host memory that the process may hold: what it holds now, and its part of what is
/// free if `num_processes` divide it.
double attainable_memory(const MemoryLimits& limits, std::int64_t num_processes);

}  // namespace megatron
