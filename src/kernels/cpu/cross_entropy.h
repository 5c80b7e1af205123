// Cross entropy over rows of logits: what the loss needs of a row, and the gradient of its logits.
// A row's numbers depend on nothing but the row.
//
// Order of summation: a row goes by blocks of 1,024 columns. Column c of a block belongs to lane c
// mod 64; a lane adds its exponentials in ascending order, relative to the largest logit of this
// block and those before it. At the end lane l takes lanes l + 16, l + 32 and l + 48, then l + 8 …
// l
// + 1.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// Rows of logits in f32 (f64): the columns from `first_column` on of the whole vocabulary, which
/// labels count.
struct CrossEntropyRows {
  const void* logits;
  Type type;
  std::int64_t row_stride;  ///< in elements
  std::int64_t columns, first_column;
  const std::int64_t* labels;
};

/// lse = log Σ exp(logits) and the label's logit (0 where other columns have it) of each row, in
/// the logits' type.
struct CrossEntropyStatistics {
  CrossEntropyRows rows;
  void *lse, *label_logit;
};

/// gradient = (exp(logit − lse) − [column is the label's])·mask·scale, rounded once. Logits of the
/// same type may lie where the gradient goes.
struct CrossEntropyGradient {
  CrossEntropyRows rows;
  const void* lse;
  const float* mask;
  double scale;
  void* gradient;
  Type gradient_type;  ///< that of the logits, or 16 bits wide beside f32
  std::int64_t gradient_row_stride;
};

struct CrossEntropyKernels {
  void (*statistics)(const CrossEntropyStatistics&, std::int64_t begin,
                     std::int64_t end);  ///< of rows [begin, end)
  void (*gradient)(const CrossEntropyGradient&, std::int64_t begin, std::int64_t end);
};

/// The table for this CPU.
const CrossEntropyKernels& cross_entropy_kernels();

}  // namespace megatron::kernels
