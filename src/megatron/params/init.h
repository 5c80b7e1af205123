// Weight initialisation by coordinates: every number is a function of (seed, parameter name, index
// in the unpadded global shape).
#pragma once

#include <cstdint>
#include <span>

#include "megatron/params/parameter.h"

namespace megatron {

/// Draws elements first, first + 1, … of the global tensor that `key` stands for. Normal numbers
/// come in pairs from Box–Muller, computed in double.
void draw(const Init& init, std::uint64_t key, std::int64_t first, std::span<double> out);

/// Fills `value`, which has the local shape of `parameter`: each slice by its global coordinates,
/// padding with zeros.
void initialize_parameter(const Parameter& parameter, at::Tensor value, std::uint64_t seed);

}  // namespace megatron
