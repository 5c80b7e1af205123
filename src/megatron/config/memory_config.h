// The settings by which a run uses less memory: recomputation and offload of activations, and a
// budget from which both are chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

/// Activations that backward computes again (Chen et al. 2016; Korthikanti et al. 2022).
struct RecomputeConfig {
  std::string recompute_granularity;   ///< full | selective | adaptive; empty: nothing
  bool recompute_activations = false;  ///< selective, also in place of full
  bool moe_layer_recompute = false;    ///< selective with the module moe
  std::string recompute_method;        ///< uniform | block; used by full
  /// uniform: layers of a recomputed group; block: recomputed layers of a pipeline stage.
  std::optional<std::int64_t> recompute_num_layers;
  /// Recomputed parts of a layer, for selective; empty: core_attn.
  std::vector<std::string> recompute_modules;
  /// For each layer 1 = recomputed, 0 = not; a list expression. Empty: every layer.
  std::string recompute_layers;
  /// Number of the microbatches in flight on a pipeline rank that follow the settings above. The
  /// others recompute every layer (Korthikanti et al. 2022, appendix C); none: all follow them.
  std::optional<std::int64_t> num_microbatches_with_partial_activation_checkpoints;
  bool distribute_saved_activations = false;  ///< keep a slice of them on each tp rank
};

/// Activations and optimizer state that wait in another memory: pinned host memory of a GPU's host,
/// or a file.
struct OffloadConfig {
  bool cpu_offloading = false;
  std::int64_t cpu_offloading_num_layers = 0;  ///< the first layers of each pipeline stage
  bool cpu_offloading_activations = true, cpu_offloading_weights = false;
  bool fine_grained_activation_offloading = false;
  std::vector<std::string> offload_modules;
  std::int64_t min_offloaded_tensor_size = 1024 * 1024;  ///< elements
  double activation_offload_fraction = 1;
  std::string offload_folder;  ///< empty: host memory
  bool optimizer_cpu_offload = false;
  double optimizer_offload_fraction = 1;
  bool overlap_cpu_optimizer_d2h_h2d = false;
};

struct MemoryConfig {
  RecomputeConfig recompute;
  OffloadConfig offload;
  std::string memory_budget;  ///< of each rank: "20GB" or "auto"; empty: none
  /// What each layer does with its activations (config/activation_plan.h); empty: as the settings
  /// above say. A budget sets it.
  std::string activation_plan;
  std::int64_t planned_world_size = 0;    ///< ranks of the run that a budget planned for
  bool chooses_micro_batch_size = false;  ///< the budget does: no size is given

  /// Returns whether a budget chooses the plan.
  bool has_budget() const {
    return !memory_budget.empty() || recompute.recompute_granularity == "adaptive";
  }
};

}  // namespace megatron
