// Implements --log-memory: a breakdown of memory use. The parts add up to the resident memory of
// the process (or, on a GPU, to the memory of the caching allocator); memory that no part explains
// has a line of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/models/model_cost.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"
#include "megatron/training/observability/tensor_memory.h"

namespace megatron {

/// Resident bytes of the process's mappings by kind (/proc/self/smaps).
struct MappedMemory {
  double heap = 0;  ///< the main thread's heap, which holds nearly all allocations, in use or freed
  double anonymous = 0;  ///< heaps of other threads, stacks
  double data_files = 0;
  double program = 0;  ///< the program and its libraries
  double total() const { return heap + anonymous + data_files + program; }
};

/// Parses the text of /proc/self/smaps and sums its mappings.
MappedMemory mapped_memory(std::string_view smaps);

/// Bytes of tensors that exist for the whole run.
struct ModelMemory {
  double parameters = 0, main_parameters = 0, gradients = 0, optimizer_state = 0;
  double total() const { return parameters + main_parameters + gradients + optimizer_state; }
};

/// `optimizer` is null when there is none yet.
ModelMemory model_memory(const ParamStore& weights, Optimizer* optimizer);

/// Parts (name, bytes) that sum to `total`. The last part is the remainder; it may be negative when
/// memory is reserved but not touched yet.
struct MemoryBreakdown {
  std::vector<std::pair<std::string, double>> parts;
  double total = 0;
};

/// Breaks down the memory of the process, for a CPU. `heap_bytes` is what the C library's heap has
/// in use; it does not contain tensors.
MemoryBreakdown cpu_memory_breakdown(const ModelMemory& model, const TensorMemory& tensors,
                                     const MappedMemory& mapped, double heap_bytes);
/// Breaks down the memory that the GPU's caching allocator has reserved.
MemoryBreakdown gpu_memory_breakdown(const ModelMemory& model, const TensorMemory& tensors);

/// Measures the memory in use now. The peak counts from the last reset.
MemoryBreakdown measure_memory(const ParamStore& weights, Optimizer& optimizer);

/// Returns Megatron's head line and one line per part, in MB. Parts that model_cost.h predicts show
/// the theoretical value beside the measured one.
std::string memory_table(std::int64_t iterations, const MemoryBreakdown& measured,
                         const TheoreticalMemory& theory);

}  // namespace megatron
