// Arithmetic on shapes and slices read from files: nothing overflows, and a set of slices is shown
// to tile a tensor exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "megatron/params/sharding.h"

namespace megatron {

/// A rectangle of a global tensor.
struct Region {
  Shape offset, shape;
};

/// Product of the extents; nothing when an extent is negative or the product exceeds 2⁶².
std::optional<std::int64_t> checked_num_elements(const Shape& shape);

/// The common part of two regions of one tensor; nothing when it is empty.
std::optional<Region> intersect(const Region& a, const Region& b);

/// Why the regions do not tile a tensor of `shape` exactly (outside, overlapping, missing
/// elements); empty when they do.
std::string tiling_error(const Shape& shape, std::span<const Region> regions);

/// "[2, 3]".
std::string shape_text(const Shape& shape);

}  // namespace megatron
