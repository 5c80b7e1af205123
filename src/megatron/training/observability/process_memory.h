// Reports how much memory this process holds, from the kernel's counters or from the GPU's caching
// allocator.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// Returns the memory that the process holds on `device` now.
MemoryMetrics process_memory(c10::Device device);

/// Returns the bytes in use on `device` by all processes (for a CPU, of the machine's memory).
double device_memory_used(c10::Device device);

/// Returns a value of /proc/self/status, such as "VmHWM:", in bytes; 0 when absent.
double process_status(std::string_view key);

/// Returns a value of /proc/meminfo, such as "MemTotal:", in bytes; 0 when absent.
double machine_memory(std::string_view key);

/// Returns `[Rank 0] (after N iterations) memory (MB) | resident: … | max resident: …`, or on a GPU
/// Megatron's ` | allocated: … | max allocated: … | reserved: … | max reserved: …`. With
/// --log-device-memory-used (`with_device_total`) adds ` | total device memory used: …`.
std::string memory_line(std::int64_t iterations, c10::Device device, bool with_device_total);

}  // namespace megatron
