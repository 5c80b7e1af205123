// The algebra of foreign tensors: each is block i, expert e, transposed, of one of our parameters.
// Blocks and repeats are those of the parameter's Sharding (params/sharding.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/params/sharding.h"

namespace megatron {

/// Consecutive blocks of a Sharding, each collected over all repeats, one after the other. None
/// means the whole tensor as it is.
struct Blocks {
  std::size_t first = 0, count = 0;
};

/// The part of a parameter that one foreign tensor holds.
struct TensorPart {
  Blocks blocks = {};
  bool is_transposed = false;               ///< of a matrix; vectors are as they are
  std::optional<std::int64_t> expert = {};  ///< the index along dimension 0, which is dropped

  /// Returns the slices of the parameter, each with its place in oriented().
  std::vector<TensorSlice> slices(const Sharding& ours) const;
  /// Returns the shape of the foreign tensor.
  Shape shape(const Sharding& ours) const;
  /// Returns a view of the foreign tensor with the dimensions of the parameter.
  at::Tensor oriented(at::Tensor theirs) const;
  /// Returns the foreign tensor that a parameter with this value gives.
  at::Tensor cut(const at::Tensor& value, const Sharding& ours) const;
};

}  // namespace megatron
