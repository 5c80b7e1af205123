// What every layer of a forward pass shares: randomness, positions, rotary tables and, when
// generating, what layers remember.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "megatron/nn/unit_hooks.h"
#include "megatron/ops/kv_cache.h"
#include "megatron/ops/random_site.h"

namespace megatron {

struct ForwardContext {
  std::uint64_t seed = 0;
  bool training = false;              ///< dropout is on
  at::Tensor sample_ordinals;         ///< int64 [b]
  at::Tensor document_ids;            ///< int32 [b, s] or undefined
  at::Tensor rotary_cos, rotary_sin;  ///< [s, 1 or b, 1, rotary_dim / 2] or undefined
  KvCache* kv_cache = nullptr;        ///< generating: one per layer
  std::int64_t q_start = 0;           ///< generating: tokens already in the kv_cache
  std::int64_t s_start = 0;           ///< position of the first of this rank's hidden rows
  bool sequence_parallel = false;     ///< hidden rows are this rank's slice of the sequence
  UnitHooks* hooks = nullptr;         ///< called around every unit

  /// The dropout site `path.name`; inactive outside training.
  DropoutSite dropout(std::string_view path, std::string_view name, double probability) const;
};

}  // namespace megatron
