// What a product with a split weight exchanges with the ranks that hold the weight's other parts,
// and the products that do it. Rows are positions × samples: a slice of the sequence is a run of
// rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/parallel/rank.h"

namespace megatron {

/// How the rows of x come to this rank, and those of y leave it. Without effect on an axis of
/// size 1.
struct LinearExchange {
  enum class Input {
    own,      ///< x is split over its features, as the weight is
    copied,   ///< x is the same on every rank: its gradient is summed
    gathered  ///< x is this rank's slice of the sequence: gathered, and its gradient summed and
              ///< split
  };
  enum class Output {
    own,              ///< y is split over its features, as the weight is
    reduced,          ///< y is a part of a sum over the ranks
    reduce_scattered  ///< the same, and this rank keeps its slice of the sequence
  };
  Input input = Input::own;
  Output output = Output::own;
  TensorParallelOptions options;
  const char* what = "linear";  ///< a literal: names the calls in counters
};

/// With whom rows are exchanged, in how many pieces, and under which name.
struct RowGroup {
  const Axis& axis;
  std::int64_t chunks = 1;
  const char* what = "linear";
};

/// All ranks' rows of x [m, k], times b [k, n], plus bias [n] or undefined: [size·m, n]. `all` (may
/// be null) receives the rows [size·m, k]. In several pieces, one is multiplied while later ones
/// arrive.
at::Tensor all_gather_matmul(const at::Tensor& x, const at::Tensor& b, const at::Tensor& bias,
                             const RowGroup& group, at::Tensor* all = nullptr);

/// The sum over the ranks of x [m, k] · b [k, n], or with `scatter` this rank's slice of the rows.
/// In several pieces, one is on its way while the next is multiplied.
at::Tensor matmul_reduce(const at::Tensor& x, const at::Tensor& b, bool scatter,
                         const RowGroup& group);

}  // namespace megatron
