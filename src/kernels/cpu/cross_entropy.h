// Cross entropy over rows of logits: the statistics that the loss needs, and the gradient of the
// logits. The results of a row depend on that row alone.
//
// Order of summation: a row is read in blocks of 1,024 columns. Column c of a block belongs to lane
// c mod 64. A lane adds its exponentials in ascending order, relative to the largest logit of this
// block and those before it. At the end lane l takes lanes l + 16, l + 32 and l + 48, and the
// remaining sixteen lanes are folded pairwise (l + 8, l + 4, l + 2, l + 1).
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// Rows of logits in f32 (f64). They hold the columns of the vocabulary from `first_column` on.
/// Labels index the whole vocabulary.
struct CrossEntropyRows {
  const void* logits;
  Type type;
  std::int64_t row_stride;  ///< in elements
  std::int64_t columns, first_column;
  const std::int64_t* labels;
};

/// lse = log Σ exp(logits) and the label's logit of each row, in the logits' type. The label's
/// logit is 0 when its column is elsewhere.
struct CrossEntropyStatistics {
  CrossEntropyRows rows;
  void *lse, *label_logit;
};

/// gradient = (exp(logit − lse) − [column is the label's])·mask·scale, rounded once. The gradient
/// may overwrite the logits if both have the same type.
struct CrossEntropyGradient {
  CrossEntropyRows rows;
  const void *lse, *mask;  ///< in the type of the logits
  double scale;
  void* gradient;
  Type gradient_type;  ///< the type of the logits, or 16 bits wide when they are f32
  std::int64_t gradient_row_stride;
};

/// The cross entropy kernels of one instruction set.
struct CrossEntropyKernels {
  /// Runs on rows [begin, end).
  void (*statistics)(const CrossEntropyStatistics&, std::int64_t begin, std::int64_t end);
  void (*gradient)(const CrossEntropyGradient&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const CrossEntropyKernels& cross_entropy_kernels();

}  // namespace megatron::kernels
