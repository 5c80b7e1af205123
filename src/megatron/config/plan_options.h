// The settings of `plan --world-size` and of `plan --memory`, which the engine computes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/command_line.h"
#include "megatron/config/layout_plan_fields.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/settings.h"

namespace megatron {

/// What `plan --world-size` was asked for: layouts of the run's model over these ranks.
struct LayoutPlanOptions {
  std::int64_t world_size = 0, gpus_per_host = kGpusPerHost, max_layouts = 20;
  double memory_limit_gib = kMemoryLimitGib;
  bool json = false;
  std::string model = "gpt";
  Settings run;
  ParseResult parsed;
};

/// Reads the flags of `plan --world-size`. Call check_layout_plan(), then print `parsed.notes`.
/// `families` names the model families; empty: those of the library.
LayoutPlanOptions read_layout_plan(std::span<const std::string> args,
                                   const std::vector<std::string>& families = {});

/// Sets what older flags such as --swiglu stand for. Then checks what a run checks on one rank, as
/// far as layouts depend on it, and adds the notes. Throws one UserError with all problems.
void check_layout_plan(LayoutPlanOptions& options);

/// What `plan --memory` was asked for: the memory of a rank of the run.
struct MemoryPlanOptions {
  bool memory = false, json = false;
  std::optional<std::int64_t> world_size;
  std::string model = "gpt";
  Settings run;
  ParseResult parsed;

  /// Returns --world-size or, without it, the fewest ranks that the sizes of parallelism allow.
  std::int64_t num_ranks() const;
};

/// Reads the flags of `plan --memory`. Call check_memory_plan(), then print `parsed.notes`.
MemoryPlanOptions read_memory_plan(std::span<const std::string> args,
                                   const std::vector<std::string>& families = {});

/// Does the same as check_layout_plan(), and checks that the ranks fit the sizes of parallelism.
void check_memory_plan(MemoryPlanOptions& options);

}  // namespace megatron
