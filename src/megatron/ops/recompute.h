// Recomputation of activations (Chen et al. 2016), as torch.utils.checkpoint without reentrance:
// the first forward pass keeps its input only; the first backward function that needs a tensor runs
// the pass again, up to the last tensor that any of them needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megatron/ops/differentiable.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// Values that the second run of a forward pass must see as the first run saw them, although they
/// have changed since, such as the counts of a router.
class ForwardReplay {
 public:
  /// Returns whether this is the second run. It must not have effects that the first run had.
  bool is_second_run() const { return is_second_run_; }
  /// Returns `value` in the first run and, in the second run, the value of the same call in the
  /// first. Calls must be in the same order. The value must not be changed in place later.
  at::Tensor keep(const at::Tensor& value);
  void begin_second_run() { is_second_run_ = true; }

 private:
  std::vector<at::Tensor> values_;
  std::size_t next_ = 0;
  bool is_second_run_ = false;
};

using RecomputedForward = std::function<Tensors(const Tensors& inputs, ForwardReplay& replay)>;

struct RecomputeOptions {
  /// Each of these ranks keeps a slice of each input, which backward gathers. Null: all of it.
  const Axis* distributes_over = nullptr;
  /// Is offered to compute each output again (SavedTensorHooks::take_offer): then ops that read the
  /// outputs need not keep them either. Null: they keep them.
  SavedTensorHooks* outputs = nullptr;
};

/// Returns forward(inputs) and keeps the inputs only. `forward` must be a function of them: it runs
/// again in backward, with the same bits, before the backward of its last op. Everything that
/// it captures must live until then. Collective in backward too when `forward` is, and over
/// options.distributes_over. Runs `forward` once when nothing is recorded.
Tensors recomputed(const Tensors& inputs, const RecomputedForward& forward,
                   const RecomputeOptions& options = {});

/// The same for one input and one output.
template <class Forward>
at::Tensor recomputed(const at::Tensor& input, Forward forward,
                      const RecomputeOptions& options = {}) {
  auto listed = [forward = std::move(forward)](const Tensors& inputs, ForwardReplay& replay) {
    return Tensors{forward(inputs.front(), replay)};
  };
  return recomputed(Tensors{input}, std::move(listed), options).front();
}

/// Keeps outputs that are cheap to compute again, such as those of norms, as a way to compute them
/// (Megatron's CheckpointWithoutOutput). The op that reads an output in its backward, and would
/// keep it, gets it from the op that made it and offers to compute it (Recorded::recompute_last).
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
