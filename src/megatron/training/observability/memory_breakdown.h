// Implements --log-memory: measures where the memory of a rank goes (planner/memory_table.h). The
// parts come from counters of their own: the tensors' allocator, the C library's heap, and the
// resident pages of each mapping. What they do not explain of the process's peak is shown too.
#pragma once

#include <string>
#include <string_view>

#include "megatron/models/model_cost.h"
#include "megatron/ops/offload_store.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/axis.h"
#include "megatron/params/param_store.h"
#include "megatron/planner/memory_table.h"
#include "megatron/training/observability/tensor_memory.h"

namespace megatron {

/// Resident bytes of the process's mappings by kind (/proc/self/smaps).
struct MappedMemory {
  double tensors = 0;  ///< the heaps of the tensors' allocator
  double heap = 0;  ///< the main thread's heap, which holds nearly all allocations, in use or freed
  double anonymous = 0;  ///< heaps of other threads, stacks
  double shared = 0;     ///< shared with other ranks
  double data_files = 0;
  double program = 0;  ///< the program and its libraries
  double total() const { return tensors + heap + anonymous + shared + data_files + program; }
};

/// Parses the text of /proc/self/smaps and sums its mappings. `holds_tensors` says whether the
/// mapping at an address is a heap of the tensors' allocator.
MappedMemory mapped_memory(std::string_view smaps, bool (*holds_tensors)(const void*));

/// Bytes of tensors that exist for the whole run.
struct ModelMemory {
  double parameters = 0, main_parameters = 0, gradients = 0, optimizer_state = 0;
  double total() const { return parameters + main_parameters + gradients + optimizer_state; }
};

/// `optimizer` is null when there is none yet.
ModelMemory model_memory(const ParamStore& weights, Optimizer* optimizer);

/// Memory of the host that no tensor uses.
struct HostMemory {
  double heap_in_use = 0;  ///< of the C library's heap
  double workspaces = 0;   ///< of the threads of the kernels (ops/parallel_kernel.h)
  double anonymous = 0;    ///< MappedMemory::anonymous
};
HostMemory host_memory();

/// What the parts of a table are computed from.
struct MemoryReadings {
  ModelMemory model;
  TensorMemory tensors;
  double activations = 0;
  HostMemory before_model, now;
  MappedMemory mapped;
  double units = 0;  ///< ParamStore::unit_bytes(), which count as temporary
  double peak = 0;   ///< the most that the process has held, or a GPU's caching allocator
};

/// Returns the table of a process that computes on the CPU.
MemoryTable cpu_memory_table(const MemoryReadings& readings);
/// Returns the table of a GPU's memory. Without the context of the driver, which the allocator does
/// not know.
MemoryTable gpu_memory_table(const MemoryReadings& readings);

/// The activations of the last step (activation_recorder.h).
struct RecordedActivations {
  double peak = 0;  ///< of all microbatches in flight
  std::vector<UnitActivations> units = {};
};

/// Measures the memory of this process. The tensors' peak counts from its last reset.
MemoryTable measure_memory(const ParamStore& weights, Optimizer& optimizer,
                           RecordedActivations activations, const HostMemory& before_model);

/// What is outside memory, counted since the start of the run.
struct OffloadCounters {
  OffloadedMemory activations, state;
};
/// `activations` may be null, as may the optimizer's store.
OffloadCounters offload_counters(const OffloadStore* activations, Optimizer& optimizer);
/// Sets what is offloaded; `before` was counted before the step.
void set_offloaded(MemoryTable& table, const OffloadCounters& before, const OffloadCounters& now);

/// Returns the tables of all ranks, in the order of the ranks. Collective over the axis.
std::vector<MemoryTable> gather_memory_tables(const Axis& world, c10::Device device,
                                              const MemoryTable& mine);

/// Returns Megatron's head line and the table of rank 0, next to that of the rank with the highest
/// peak, which is named. Below it are what tensors hold at the peak and Megatron's theory.
std::string memory_report(std::int64_t iterations, std::span<const MemoryTable> ranks,
                          const TheoreticalMemory& theory);

}  // namespace megatron
