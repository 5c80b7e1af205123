// Measures what it costs a layer to recompute or to offload its activations.
#pragma once

#include <cstddef>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/models/model_family.h"
#include "megatron/ops/offload_store.h"
#include "megatron/planner/measure_layers.h"

namespace megatron {

struct Rank;
struct Settings;
struct TransformerConfig;

using Policies = std::vector<LayerPolicy>;

/// Returns what a layer of any kind may recompute: nothing first, then more and more.
Policies recomputations(const TransformerConfig& model);

/// Returns the policy without the parts that a layer lacks.
LayerPolicy for_layer(LayerPolicy policy, const LayerKind& kind);

/// Returns the policy for each layer of the model.
Policies for_every_layer(const TransformerConfig& model, const LayerPolicy& policy);

/// Bytes per second of an offload store; 0 without one.
struct OffloadSpeed {
  double write = 0, read = 0;
};

/// Measures a store with a few MiB, so that the process needs hardly more memory; zeros if `store`
/// is null. Collective over the world; all ranks return the speed that rank 0 measures.
OffloadSpeed measure_offload(OffloadStore* store, const Rank& rank);

/// Times at one micro-batch size, of one microbatch; identical on every rank.
struct PolicyTimes {
  Policies policies;              ///< recomputations()
  std::vector<LayerTimes> times;  ///< one per policy
  OffloadSpeed offload;

  /// Returns the time of a layer whose policy offloads `offloaded_bytes`, or 0 bytes.
  double layer_s(const LayerPolicy& policy, const LayerKind& kind, double offloaded_bytes) const;

 private:
  double more_s(std::size_t policy, const LayerKind& kind) const;
  double offload_s(double bytes, const LayerKind& kind) const;
};

/// Runs the layers of `settings` with each policy. Collective over the world.
PolicyTimes measure_policies(const Settings& settings, const ModelFamily& family, const Rank& rank,
                             const OffloadSpeed& offload);

}  // namespace megatron
