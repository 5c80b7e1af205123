#include "megatron/base/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "megatron/base/control_groups.h"

namespace megatron {
namespace {

/// Returns the value of a "Key:  123 kB" line of a /proc file in bytes; 0 when absent.
double proc_bytes(const char* path, std::string_view key) {
  constexpr double kKilobyte = 1024;
  std::ifstream file(path);
  std::string word;
  double kilobytes = 0;
  while (file >> word) {
    if (word == key && file >> kilobytes) return kilobytes * kKilobyte;
  }
  return 0;
}

double soft_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  const bool is_bound = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_bound ? static_cast<double>(limit.rlim_cur) : 0;
}

/// Returns the stack that a new thread reserves: ulimit -s, or what glibc takes without one.
double thread_stack() {
  constexpr double kWithoutLimit = 2 << 20;
  const double limit = soft_limit(RLIMIT_STACK);
  return limit > 0 ? limit : kWithoutLimit;
}

}  // namespace

double process_status(std::string_view key) { return proc_bytes("/proc/self/status", key); }

double machine_memory(std::string_view key) { return proc_bytes("/proc/meminfo", key); }

MemoryLimits host_memory_limits() {
  return {.address_space = soft_limit(RLIMIT_AS),
          .data = soft_limit(RLIMIT_DATA),
          .reserved_addresses = process_status("VmSize:"),
          .reserved_data = process_status("VmData:"),
          .resident = process_status("VmRSS:"),
          .thread_stack = thread_stack(),
          .cgroup = cgroup_memory_limit(),
          .machine = machine_memory("MemTotal:"),
          .available = machine_memory("MemAvailable:")};
}

std::optional<double> usable_under_ulimits(const MemoryLimits& limits) {
  // Threads that read data ahead, serve an offload folder and run backward, and LibTorch's.
  constexpr double kThreadsStartedLater = 8;
  const double stacks = kThreadsStartedLater * limits.thread_stack;
  std::optional<double> usable;
  const auto bound = [&](double limit, double reserved) {
    if (limit <= 0) return;
    // A resident page of a library is no data, so more may be resident than is reserved.
    const double rest = std::max(0.0, limit - reserved + limits.resident - stacks);
    usable = std::min(usable.value_or(rest), rest);
  };
  bound(limits.address_space, limits.reserved_addresses);
  bound(limits.data, limits.reserved_data);
  return usable;
}

double attainable_memory(const MemoryLimits& limits, std::int64_t num_processes) {
  const auto parts = static_cast<double>(num_processes);
  double most = limits.resident + limits.available / parts;
  if (limits.cgroup > 0) most = std::min(most, limits.cgroup / parts);
  return std::min(most, usable_under_ulimits(limits).value_or(most));
}

}  // namespace megatron
