// State that all layers of a forward pass share: seed, positions, rotary tables and, in generation,
// the caches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "megatron/config/offload_plan.h"
#include "megatron/nn/unit_hooks.h"
#include "megatron/ops/offloaded_activations.h"
#include "megatron/ops/random_site.h"
#include "megatron/ops/recompute.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// The arguments of a forward pass that do not belong to one layer.
struct ForwardContext {
  std::uint64_t seed = 0;
  bool training = false;              ///< turns dropout on
  at::Tensor sample_ordinals;         ///< int64, one for each sample [b] or packed sequence
  at::Tensor document_ids;            ///< int32 [b, positions of the sequence] or undefined
  at::Tensor rotary_cos, rotary_sin;  ///< [s, 1 or b, 1, rotary_dim / 2] or undefined
  /// Generation: what the layers remember of each sequence. Null: sequences begin with this pass.
  const Caches* caches = nullptr;
  /// The rows that each rank of `cp` holds, and the sequences packed in them. Null when this rank
  /// holds all positions of unpacked sequences without caches.
  std::shared_ptr<const SequencePlacement> placement;
  const Axis* cp = nullptr;        ///< the ranks that share the rows; set together with placement
  bool sequence_parallel = false;  ///< hidden rows are this rank's slice of the microbatch's rows
  std::int64_t first_row = 0;      ///< index of this rank's first hidden row in the microbatch
  RowPositions row_positions;      ///< of this rank's hidden rows
  std::vector<std::int64_t> lengths;  ///< Microbatch::lengths, for experts; empty: no padding
  UnitHooks* hooks = nullptr;         ///< called around every unit; may be null
  /// The scalar gradient that the auxiliary losses of this microbatch receive; undefined outside
  /// training.
  at::Tensor aux_loss_gradient;
  /// Set inside a part of the model that backward runs again (ops/recompute.h).
  ForwardReplay* replay = nullptr;
  OffloadPass* offload = nullptr;  ///< where layers offload activations; null: they keep them
  /// What the current layer offloads; null: nothing by parts.
  const LayerOffload* offloaded_parts = nullptr;
  OffloadedLayer* offloaded_layer = nullptr;  ///< its hooks; set together with offloaded_parts
  /// Recompute every layer of this microbatch as a whole.
  bool recomputes_all_layers = false;

  /// Returns the hooks of a part of the layer, or null if it keeps its activations.
  SavedTensorHooks* offload_of(bool LayerOffload::*part) const {
    return offloaded_parts != nullptr && offloaded_parts->*part ? offloaded_layer : nullptr;
  }
  /// Returns whether this pass runs again what had its effects in the first run.
  bool is_second_run() const { return replay != nullptr && replay->is_second_run(); }
  /// Returns the dropout site `path.name`, which is inactive outside training.
  DropoutSite dropout(std::string_view path, std::string_view name, double probability) const;
};

}  // namespace megatron
