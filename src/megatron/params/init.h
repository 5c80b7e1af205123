// Weight initialisation by coordinates: site = parameter name, ordinal 0, index in the true global
// shape.
#pragma once

#include <cstdint>
#include <span>

#include "megatron/params/parameter.h"

namespace megatron {

/// Draws elements first, first + 1, … of the global tensor of a site. Normals come in pairs from
/// Box–Muller, computed in double.
void draw(const Init& init, std::uint64_t key, std::int64_t first, std::span<double> out);

/// Fills `value` (local shape of `parameter`): every box by its global coordinates, padding with
/// zeros.
void initialize_parameter(const Parameter& parameter, at::Tensor value, std::uint64_t seed);

}  // namespace megatron
