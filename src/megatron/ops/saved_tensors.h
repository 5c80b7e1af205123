// Hooks on the tensors that backward functions read, like torch.autograd.graph.saved_tensors_hooks.
// Recomputation and offload keep something smaller, or elsewhere, in place of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace megatron {

/// What is kept of a tensor between forward and backward.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  /// Returns the tensor, which is kept no longer. Called at most once.
  virtual at::Tensor take() = 0;
};
using SavedTensors = std::vector<std::shared_ptr<SavedTensor>>;

/// Decides how the ops of differentiable() keep tensors for backward.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// Returns what is kept in place of `tensor`, which is defined and has no history. Null lets the
  /// hooks of the enclosing scope decide.
  virtual std::shared_ptr<SavedTensor> save(const at::Tensor& tensor) = 0;
  /// Called with an output that `compute` can compute again, with the same bits, until backward of
  /// its op has run. Returns false to pass the offer on to the enclosing scope.
  virtual bool take_offer(const at::Tensor& /*output*/,
                          const std::function<at::Tensor()>& /*compute*/) {
    return false;
  }
  /// Called before the layers of a pass with the tensors that all of them read, such as rotary
  /// tables.
  virtual void share(const std::vector<at::Tensor>& /*tensors*/) {}
};

/// Installs hooks on this thread for its lifetime. Hooks of an enclosing scope come after them.
class SavedTensorHooksScope {
 public:
  /// Null changes nothing.
  explicit SavedTensorHooksScope(SavedTensorHooks* hooks);
  SavedTensorHooksScope(const SavedTensorHooksScope&) = delete;
  SavedTensorHooksScope& operator=(const SavedTensorHooksScope&) = delete;
  ~SavedTensorHooksScope();

 private:
  friend std::shared_ptr<SavedTensor> save_for_backward(const at::Tensor& tensor);
  friend void offer_recomputation(const at::Tensor& output,
                                  const std::function<at::Tensor()>& compute);
  friend void share_saved_tensors(const std::vector<at::Tensor>& tensors);
  SavedTensorHooks* hooks_;
  const SavedTensorHooksScope* enclosing_;
};

/// Returns whether this thread has hooks.
bool has_saved_tensor_hooks();
/// Returns what the hooks of this thread keep of a tensor; without hooks, the tensor itself.
/// Returns null for an undefined tensor.
std::shared_ptr<SavedTensor> save_for_backward(const at::Tensor& tensor);
/// Offers the hooks of this thread to compute `output` again (SavedTensorHooks::take_offer).
void offer_recomputation(const at::Tensor& output, const std::function<at::Tensor()>& compute);
/// Tells the hooks of this thread what all layers of a pass read (SavedTensorHooks::share).
void share_saved_tensors(const std::vector<at::Tensor>& tensors);

}  // namespace megatron
