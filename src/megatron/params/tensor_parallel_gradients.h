// Sums gradients of which every rank of an axis that shards parameters (tp, etp) computed a part.
// These are the gradients of parameters that are replicated while activations are sharded, and of
// blocks that several ranks hold (keys and values with fewer groups than ranks).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/params/param_bucket.h"

namespace megatron {

/// The runs of this rank's gradients that need a sum over an axis.
class TensorParallelGradients {
 public:
  /// `buckets` are those of the pieces; the storage of their own_grad must stay the same.
  TensorParallelGradients(const std::vector<ParameterPiece>& pieces,
                          const std::vector<ParamBucket>& buckets);
  /// Sums the parts. Collective over the axes: one all-reduce for each, or none when no parameter
  /// needs it.
  void sum() const;

 private:
  struct Run {
    const Parameter* parameter;
    std::int64_t first, count;   ///< range of elements in the flattened local gradient
    std::int64_t place, copies;  ///< place of this rank among `copies` equal places in the message
    at::Tensor grad = {};        ///< the range of this rank's gradient
  };
  /// The runs of one axis, which one message carries.
  struct Message {
    Axis axis;
    std::string what;  ///< name of the collective
    std::vector<Run> runs = {};
    std::int64_t size = 0;
    void sum() const;
  };
  void add(const ParameterPiece& piece, const ParamBucket& bucket, const Axis& axis, Run run);

  std::vector<Message> messages_;
};

}  // namespace megatron
