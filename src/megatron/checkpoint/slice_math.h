// Arithmetic on shapes and slices that were read from files. It never overflows, and it checks that
// a set of slices tiles a tensor exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "megatron/params/sharding.h"

namespace megatron {

/// Returns the number of elements; nullopt when an extent is negative or the number exceeds 2⁶².
std::optional<std::int64_t> checked_num_elements(const Shape& shape);

/// Returns the slice of `shape` at `offset` of a global tensor, held in a tensor of its own.
TensorSlice slice_at(Shape offset, Shape shape);
/// Returns the slice that is a whole tensor.
TensorSlice whole_slice(const Shape& shape);

/// Returns the part of `a` that `b` also covers, with its place in the tensor that holds `a`;
/// nullopt when it is empty.
std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b);

/// Returns why the slices do not tile a tensor of `shape` exactly (outside, overlapping or missing
/// elements); empty when they do.
std::string tiling_error(const Shape& shape, std::span<const TensorSlice> slices);

/// Formats a shape as "[2, 3]".
std::string shape_text(const Shape& shape);

}  // namespace megatron
