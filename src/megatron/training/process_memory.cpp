#include "megatron/training/process_memory.h"

#include <fstream>

#include "megatron/base/format.h"

namespace megatron {
namespace {

/// A "Key:  123 kB" line of /proc/self/status in megabytes; 0 when absent.
double status_megabytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kilobytes = 0;
  while (status >> word) {
    if (word == key && status >> kilobytes) return kilobytes / 1024;
  }
  return 0;
}

}  // namespace

std::string memory_line(std::int64_t iterations) {
  return format("[Rank 0] (after %lld iterations) memory (MB) | resident: %.2f | max resident: %.2f", static_cast<long long>(iterations),
                status_megabytes("VmRSS:"), status_megabytes("VmHWM:"));
}

}  // namespace megatron
