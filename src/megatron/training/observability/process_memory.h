// How much memory this process holds: as the kernel counts it, or as the caching allocator of a GPU
// does.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// What the process holds on `device` now.
MemoryMetrics process_memory(c10::Device device);

/// Bytes of `device` in use, by whomever: the machine's memory on a CPU.
double device_memory_used(c10::Device device);

/// A line of /proc/meminfo ("MemTotal:") in bytes; 0 when absent.
double machine_memory(std::string_view key);

/// `[Rank 0] (after N iterations) memory (MB) | resident: … | max resident: …`, on a GPU Megatron's
/// ` | allocated: … | max allocated: … | reserved: … | max reserved: …`; with
/// --log-device-memory-used also ` | total device memory used: …`.
std::string memory_line(std::int64_t iterations, c10::Device device, bool with_device_total);

}  // namespace megatron
