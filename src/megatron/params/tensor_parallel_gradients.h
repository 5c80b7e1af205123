// Sums gradients of which every tensor-parallel rank computed a part. These are the gradients of
// parameters that are replicated while activations are sharded, and of blocks that several ranks
// hold (keys and values with fewer groups than ranks).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/params/param_bucket.h"

namespace megatron {

/// The runs of this rank's gradients that need a sum over tp.
class TensorParallelGradients {
 public:
  explicit TensorParallelGradients(const std::vector<ParameterPiece>& pieces);
  /// Sums the parts. Collective over tp: one all-reduce, or none when no parameter needs it.
  void sum() const;

 private:
  struct Run {
    const Parameter* parameter;
    std::int64_t first, count;   ///< range of elements in the flattened local gradient
    std::int64_t place, copies;  ///< place of this rank among `copies` equal places in the message
  };
  void add(const ParameterPiece& piece, std::int64_t begin, std::int64_t end, std::int64_t place,
           std::int64_t copies);

  Axis tp_;
  std::vector<Run> runs_;
  std::int64_t size_ = 0;
};

}  // namespace megatron
