// A flat piece of a parameter as slices of the global tensor: what files hold and readers copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/checkpoint/box_math.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// The slices that elements [first, first + count) of a tensor of `shape` fill in row-major order,
/// ascending: at most 2·dimensions − 1.
std::vector<Region> flat_range_regions(const Shape& shape, std::int64_t first, std::int64_t count);

/// A box of the global tensor and the part of a flat tensor that holds it, a view.
struct PieceBox {
  Region region;
  at::Tensor tensor;
};

/// What `flat`, the elements of `piece`, holds of `slices`, which are of the piece's parameter.
std::vector<PieceBox> piece_boxes(const ParameterPiece& piece, const at::Tensor& flat,
                                  const std::vector<TensorSlice>& slices);

/// The whole of a parameter's local tensor.
ParameterPiece whole_piece(Parameter& parameter);

}  // namespace megatron
