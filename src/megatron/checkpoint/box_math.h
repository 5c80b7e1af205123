// Arithmetic on shapes and regions that were read from files. It never overflows, and it checks
// that a set of regions tiles a tensor exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "megatron/params/sharding.h"

namespace megatron {

/// A rectangular part of a global tensor.
struct Region {
  Shape offset, shape;
};

/// Returns the number of elements; nullopt when an extent is negative or the number exceeds 2⁶².
std::optional<std::int64_t> checked_num_elements(const Shape& shape);

/// Returns the intersection of two regions of one tensor; nullopt when it is empty.
std::optional<Region> intersect(const Region& a, const Region& b);

/// Returns why the regions do not tile a tensor of `shape` exactly (outside, overlapping or missing
/// elements); empty when they do.
std::string tiling_error(const Shape& shape, std::span<const Region> regions);

/// Formats a shape as "[2, 3]".
std::string shape_text(const Shape& shape);

}  // namespace megatron
