// Gradients of which every tensor-parallel rank computed a part: of parameters that are replicated
// while the activations are split, and of the blocks that several ranks hold (keys and values when
// there are fewer groups than ranks).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/params/param_bucket.h"

namespace megatron {

class TensorParallelGradients {
 public:
  explicit TensorParallelGradients(const std::vector<ParameterPiece>& pieces);
  /// Adds the parts. Collective over tp: one all-reduce, none when no parameter needs it.
  void sum() const;

 private:
  struct Run {
    const Parameter* parameter;
    std::int64_t first, count;   ///< elements of the flattened local gradient
    std::int64_t place, copies;  ///< in the message: this rank's among `copies` equal places
  };
  void add(const ParameterPiece& piece, std::int64_t begin, std::int64_t end, std::int64_t place,
           std::int64_t copies);

  Axis tp_;
  std::vector<Run> runs_;
  std::int64_t size_ = 0;
};

}  // namespace megatron
