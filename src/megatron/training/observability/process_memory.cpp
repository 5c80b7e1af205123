#include "megatron/training/observability/process_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <fstream>

#include "megatron/base/format.h"
#include "megatron/training/observability/tensor_memory.h"

namespace megatron {
namespace {

constexpr double kKilobyte = 1024, kMegabyte = kKilobyte * 1024;

/// Returns the value of a "Key:  123 kB" line of a /proc file in bytes; 0 when absent.
double proc_bytes(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  double kilobytes = 0;
  while (file >> word) {
    if (word == key && file >> kilobytes) return kilobytes * kKilobyte;
  }
  return 0;
}

MemoryMetrics host_metrics() {
  const struct mallinfo2 heap = ::mallinfo2();
  return {.reserved_bytes = process_status("VmRSS:"),
          .max_reserved_bytes = process_status("VmHWM:"),
          .allocated_bytes = static_cast<double>(heap.uordblks + heap.hblkhd) +
                             tensor_memory(c10::kCPU).allocated_bytes};
}

}  // namespace

MemoryMetrics process_memory(c10::Device device) {
  if (device.is_cpu()) return host_metrics();
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {.reserved_bytes = static_cast<double>(stats.reserved_bytes[all].current),
          .max_reserved_bytes = static_cast<double>(stats.reserved_bytes[all].peak),
          .allocated_bytes = static_cast<double>(stats.allocated_bytes[all].current),
          .max_allocated_bytes = static_cast<double>(stats.allocated_bytes[all].peak),
          .allocated_count = static_cast<double>(stats.allocation[all].current)};
}

double process_status(std::string_view key) { return proc_bytes("/proc/self/status", key); }

double machine_memory(std::string_view key) { return proc_bytes("/proc/meminfo", key); }

double device_memory_used(c10::Device device) {
  if (device.is_cpu()) return machine_memory("MemTotal:") - machine_memory("MemAvailable:");
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return static_cast<double>(total) - static_cast<double>(free);
}

std::string memory_line(std::int64_t iterations, c10::Device device, bool with_device_total) {
  const MemoryMetrics memory = process_memory(device);
  std::string line =
      format("[Rank 0] (after %lld iterations) memory (MB) | ", static_cast<long long>(iterations));
  if (memory.max_allocated_bytes) {
    line += format("allocated: %.2f | max allocated: %.2f | reserved: %.2f | max reserved: %.2f",
                   memory.allocated_bytes / kMegabyte, *memory.max_allocated_bytes / kMegabyte,
                   memory.reserved_bytes / kMegabyte, memory.max_reserved_bytes / kMegabyte);
  } else {
    line += format("resident: %.2f | max resident: %.2f", memory.reserved_bytes / kMegabyte,
                   memory.max_reserved_bytes / kMegabyte);
  }
  if (with_device_total)
    line += format(" | total device memory used: %.2f", device_memory_used(device) / kMegabyte);
  return line;
}

}  // namespace megatron
