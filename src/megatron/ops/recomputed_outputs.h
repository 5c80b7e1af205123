// Keeps outputs that are cheap to compute again, such as those of norms, as a way to compute them
// (Megatron's CheckpointWithoutOutput): the op that reads an output in its backward, and would keep
// it, gets it from the op that made it.
#pragma once

#include <memory>
#include <unordered_map>

#include "megatron/ops/differentiable.h"

namespace megatron {

/// Hooks under which ops that offer to compute their last output again (Recorded::recompute_last)
/// need not keep it.
class RecomputedOutputs final : public SavedTensorHooks {
 public:
  std::shared_ptr<SavedTensor> save(const at::Tensor& tensor) override;
  bool take_offer(const at::Tensor& output, const std::function<at::Tensor()>& compute) override;

 private:
  class Output;
  class View;
  /// By the storage of the output. Outputs hold their storage weakly, so that no other tensor gets
  /// its address.
  std::unordered_map<const c10::StorageImpl*, std::shared_ptr<Output>> outputs_;
};

}  // namespace megatron
