// Uniform random numbers by coordinates, for router jitter and random routing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/ops/random_site.h"

namespace megatron {

/// Returns u in (0, 1) for each element of hidden rows [s, b, columns], float32: Philox with `key`,
/// the sample's ordinal and the element's index in [all positions, columns]. `ordinals` is int64
/// [b].
at::Tensor coordinate_uniforms(at::IntArrayRef shape, std::uint64_t key, const at::Tensor& ordinals,
                               const RowPositions& positions);

}  // namespace megatron
