// Converts a flat piece of a parameter to slices of the global tensor, which files hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/checkpoint/slice_math.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Returns the slices that elements [first, first + count) of a tensor of `shape` cover in
/// row-major order, ascending. There are at most 2·dimensions − 1 of them. The tensor itself holds
/// them, so both of their offsets are equal.
std::vector<TensorSlice> flat_range_slices(const Shape& shape, std::int64_t first,
                                           std::int64_t count);

/// Returns the parts of `slices`, slices of the piece's parameter, that the piece covers. Their
/// local offsets are places in the parameter's local tensor.
std::vector<TensorSlice> piece_slices(const ParameterPiece& piece,
                                      const std::vector<TensorSlice>& slices);

/// Returns a view, in the slice's shape, of the elements that `slice` has in `flat`, which has the
/// elements of `piece` and is contiguous. `slice` is one of piece_slices().
at::Tensor view_slice(const at::Tensor& flat, const ParameterPiece& piece,
                      const TensorSlice& slice);

}  // namespace megatron
