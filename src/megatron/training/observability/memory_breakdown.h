// --log-memory: where the bytes are. The parts add up to what the process (or, on a GPU, the
// caching allocator) holds; what no part explains stands as a line of its own.
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
  double heap = 0;       ///< of the main thread, which holds nearly all; given out or freed
  double anonymous = 0;  ///< other heaps, stacks
  double data_files = 0;
  double program = 0;  ///< the program and its libraries
  double total() const { return heap + anonymous + data_files + program; }
};

/// Sums a text in the format of /proc/self/smaps.
MappedMemory mapped_memory(std::string_view smaps);

/// Bytes of tensors that live as long as the run.
struct ModelMemory {
  double parameters = 0, main_parameters = 0, gradients = 0, optimizer_state = 0;
  double total() const { return parameters + main_parameters + gradients + optimizer_state; }
};

ModelMemory model_memory(const ParamStore& weights, Optimizer& optimizer);

/// Names and bytes that sum to `total`; the last is the remainder, which may be below zero where
/// memory is set aside but not touched yet.
struct MemoryBreakdown {
  std::vector<std::pair<std::string, double>> parts;
  double total = 0;
};

/// On a CPU: the process. `heap_bytes` is what the C library's heap has in use, where no tensors
/// are.
MemoryBreakdown cpu_memory_breakdown(const ModelMemory& model, const TensorMemory& tensors,
                                     const MappedMemory& mapped, double heap_bytes);
/// On a GPU: what the caching allocator has reserved.
MemoryBreakdown gpu_memory_breakdown(const ModelMemory& model, const TensorMemory& tensors);

/// Measures now; the peak counts from the last reset.
MemoryBreakdown measure_memory(const ParamStore& weights, Optimizer& optimizer);

/// Megatron's head line and a line for each part, in MB, with the theory of model_cost.h beside
/// what it speaks of.
std::string memory_table(std::int64_t iterations, const MemoryBreakdown& measured,
                         const TheoreticalMemory& theory);

}  // namespace megatron
