// State that all layers of a forward pass share: seed, positions, rotary tables and, in generation,
// the caches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/nn/unit_hooks.h"
#include "megatron/ops/offloaded_activations.h"
#include "megatron/ops/random_site.h"
#include "megatron/ops/recompute.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct LayerPolicy;

/// Tensors that layers publish for later layers, by key.
using Published = std::map<std::string, at::Tensor, std::less<>>;

/// The arguments of a forward pass that do not belong to one layer.
struct ForwardContext {
  std::uint64_t seed = 0;
  bool training = false;       ///< turns dropout on
  at::Tensor sample_ordinals;  ///< int64, one for each sample [b] or packed sequence
  /// int64 [b, s]: the token ids of the rows that the ranks of tp share. With sequence parallelism
  /// hidden row i has column first_row + i.
  at::Tensor tokens;
  at::Tensor document_ids;            ///< int32 [b, positions of the sequence] or undefined
  at::Tensor rotary_cos, rotary_sin;  ///< [s or s·b, rotary_dim / 2] or undefined
  /// The same for RotaryKind::local; undefined if no layer has it.
  at::Tensor local_cos, local_sin;
  /// [s, 1 or b, 1, 1]: what multiplies queries of layers without rotary positions, or undefined.
  at::Tensor query_factor;
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
  OffloadPass* offload = nullptr;       ///< where layers offload activations; null: they keep them
  const LayerPolicy* policy = nullptr;  ///< of the nodes of this layer; null: they keep all
  OffloadedLayer* offloaded_layer = nullptr;  ///< hooks of the nodes that it offloads, or null
  /// Recompute every layer of this microbatch as a whole.
  bool recomputes_all_layers = false;
  /// What layers have published in this pass; null if none do.
  std::shared_ptr<Published> published_tensors = nullptr;

  /// Publishes a tensor, or returns one that an earlier layer has published. The spec of the block
  /// must name the key (BlockSpec).
  void publish(std::string_view key, const at::Tensor& tensor) const;
  const at::Tensor& published(std::string_view key) const;
  /// Returns `value`, as the first run saw it (ForwardReplay::keep).
  at::Tensor first_seen(const at::Tensor& value) const {
    return replay != nullptr ? replay->keep(value) : value;
  }
  /// Returns whether this pass runs again what had its effects in the first run.
  bool is_second_run() const { return replay != nullptr && replay->is_second_run(); }
  /// Returns the dropout site `path.name`, which is inactive outside training.
  DropoutSite dropout(std::string_view path, std::string_view name, double probability) const;
};

}  // namespace megatron
