// Converts a flat piece of a parameter to regions of the global tensor, which files hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/checkpoint/box_math.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Returns the regions that elements [first, first + count) of a tensor of `shape` cover in
/// row-major order, ascending. There are at most 2·dimensions − 1 of them.
std::vector<Region> flat_range_regions(const Shape& shape, std::int64_t first, std::int64_t count);

/// A region of the global tensor and a view of the flat tensor's part that holds it.
struct PieceBox {
  Region region;
  at::Tensor tensor;
};

/// Returns the regions of `slices`, slices of the piece's parameter, that `flat` holds. `flat` has
/// the elements of `piece`.
std::vector<PieceBox> piece_boxes(const ParameterPiece& piece, const at::Tensor& flat,
                                  const std::vector<TensorSlice>& slices);

/// Returns a piece that covers a parameter's whole local tensor.
ParameterPiece whole_piece(Parameter& parameter);

}  // namespace megatron
