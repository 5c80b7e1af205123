// The ranks of an axis divide the rows of a sequence, or its heads: what needs whole sequences
// exchanges one for the other (Jacobs et al. 2023, "DeepSpeed Ulysses").
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

/// Exchanges rows for heads among the ranks of an axis, which have equally many rows. `what` is a
/// string literal for the counters. Differentiable. Collective over the axis in forward and in
/// backward.
class HeadExchange {
 public:
  /// `rows` are those of one rank. The axis must outlive this object.
  HeadExchange(const Axis& axis, std::int64_t rows)
      : axis_(axis), rows_(static_cast<std::size_t>(axis.size), rows) {}

  /// [rows, b, heads, d] → [size·rows, b, heads / size, d], rank by rank.
  at::Tensor to_heads(const at::Tensor& x, const char* what) const;
  /// The reverse, of [size·rows, b, channels of this rank's heads] → [rows, b, channels of all].
  at::Tensor to_rows(const at::Tensor& x, const char* what) const;

 private:
  const Axis& axis_;
  std::vector<std::int64_t> rows_;  ///< of each rank
};

/// Returns the rows of x in another order (SequencePlacement::row_of and order). Differentiable.
at::Tensor reordered_rows(const at::Tensor& x, const at::Tensor& order);

}  // namespace megatron
