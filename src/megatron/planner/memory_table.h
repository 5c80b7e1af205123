// The memory of a rank by part, as a table: --log-memory measures it (training/observability) and
// `megatron plan --memory` predicts it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/base/json_text.h"

namespace megatron {

/// Activations of one unit of a model: a layer, or what stands before and after the layers.
struct UnitActivations {
  std::string name;  ///< "layer 3" (0-based), "embedding"
  std::string kind;  ///< units of one kind share a line of the table: "dense layer"
  double bytes = 0;  ///< of all microbatches in flight
};

/// Bytes that wait outside a device's memory: in a file, or for a GPU in its host's memory.
struct OffloadedMemory {
  double now = 0, peak = 0;
  double written = 0, read = 0;  ///< in a step
};

/// Bytes of one rank at its peak.
struct MemoryTable {
  double parameters = 0;       ///< weights that layers compute with
  double main_parameters = 0;  ///< their float32 copies
  double gradients = 0, optimizer_state = 0;
  double activations = 0;    ///< that backward needs, of all microbatches in flight
  double temporary = 0;      ///< other tensors that a step holds for a moment at its peak
  double communication = 0;  ///< memory shared with other ranks
  double host = 0;           ///< samples, tokenizer, files of data, the program's own objects
  double workspaces = 0;     ///< the part of `host` that the threads of the kernels keep
  /// Memory that allocators hold beyond the peak of what was in use: gaps between blocks, and what
  /// was freed.
  double allocator_slack = 0;
  double libraries = 0;  ///< code and data of the program and LibTorch; on a GPU the context
  double peak = 0;       ///< the most that the process has held (VmHWM), or a GPU's allocator
  std::vector<UnitActivations> units = {};                           ///< add up to `activations`
  OffloadedMemory offloaded_activations = {}, offloaded_state = {};  ///< no parts of the sum

  /// Returns the sum of all parts.
  double explained() const;
  /// Returns what no part explains. It is negative if parts count bytes twice or memory that was
  /// never touched.
  double unexplained() const { return peak - explained(); }
  /// Returns the weights, gradients and optimizer state.
  double model() const { return parameters + main_parameters + gradients + optimizer_state; }
};

/// One column of the text, such as {"rank 3, the largest", …}.
struct MemoryColumn {
  std::string title;
  const MemoryTable* table = nullptr;
};

/// Returns one line per part in MB with a value per column, one line per kind of unit below the
/// activations, the part that nothing explains, and the sum. What is offloaded follows, if anything
/// is. Titles are printed if there are several columns. Every line begins with a line feed.
std::string memory_text(std::span<const MemoryColumn> columns);

/// Returns {"parameters": bytes, …, "workspaces", "unexplained", "peak", "units": [{"name", "kind",
/// "bytes"}], "offloaded_activations_now", …}.
JsonText memory_json(const MemoryTable& table);
/// Inverse of memory_json(), for tables of other ranks.
MemoryTable memory_table_of(const Json& json);
MemoryTable memory_table_of(const std::string& json_text);

}  // namespace megatron
