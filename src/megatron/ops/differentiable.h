// Autograd functions. Every differentiable op of ours is a forward function, the tensors it saves,
// and a typed backward function. Recomputation and offload hook in through the saved tensors, as by
// torch.autograd.graph.saved_tensors_hooks: they keep something smaller, or elsewhere, in place of
// a tensor.
//
//   at::Tensor square(const at::Tensor& x) {
//     Recording recording({.name = "SquareBackward"}, {x});
//     return recording.finish(x * x, {x}, [](BackwardPass& pass) -> Tensors {
//       return {2 * pass.saved[0] * pass.gradients[0]};
//     });
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace megatron {

using Tensors = std::vector<at::Tensor>;

/// The arguments of a backward function.
struct BackwardPass {
  Tensors saved;                  ///< the saved tensors, in the same order
  Tensors gradients;              ///< gradients of the differentiable outputs
  std::vector<bool> needs_input;  ///< per input: true when its gradient is needed
};

/// Returns one gradient per input, undefined where there is none. The function must capture only
/// plain values: a captured tensor would bypass the hooks on saved tensors.
using BackwardFunction = std::function<Tensors(BackwardPass&)>;

/// The result of a forward function.
struct Recorded {
  Tensors outputs;
  /// Every tensor that backward reads, inputs and outputs included. Undefined tensors are allowed.
  /// The tensors are released as soon as backward has run; a second backward is an error.
  Tensors saved = {};
  BackwardFunction backward = {};
  std::size_t num_differentiable = 1;  ///< the first outputs are differentiable, the others are not
  /// Computes the last output again from the saved tensors, with the same bits. Set by an op for
  /// which that is cheap.
  std::function<at::Tensor(const Tensors& saved)> recompute_last = {};
};

/// Static properties of a differentiable op.
struct DifferentiableOp {
  const char* name;  ///< name of the backward node in profiles; a string literal
  /// Backward also contributes gradients to Parameters, so it runs even if no input requires a
  /// gradient.
  bool trains_parameters = false;
  /// Backward receives undefined gradients unchanged; otherwise they become zeros.
  bool allows_undefined_gradients = false;
};

/// Records one call of an op. Its forward function runs during the lifetime of this object, without
/// recording, and ends with finish(). Nothing is saved when no gradient can be requested.
class Recording {
 public:
  Recording(const DifferentiableOp& op, at::TensorList inputs);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Saves what backward reads, but for outputs, in front of all other saved tensors. An op that
  /// saves everything before it computes is skipped by a recomputation that needs only these
  /// tensors.
  void save(const Tensors& tensors);
  /// Registers the backward function as the gradient of the outputs with respect to the inputs, and
  /// returns the outputs.
  Tensors finish(Recorded recorded);
  /// The same for one output.
  at::Tensor finish(const at::Tensor& output, Tensors saved, BackwardFunction backward);

 private:
  class Node;

  const bool is_enabled_outside_ = c10::GradMode::is_enabled();
  Tensors inputs_;
  std::shared_ptr<Node> node_;  ///< null when nothing is recorded
  c10::AutoGradMode without_recording_{false};
};

/// Returns f(inputs) and keeps the inputs only: backward runs `f` again and differentiates it by
/// autograd. For cheap compositions of ATen operators, whose own nodes would bypass the hooks on
/// saved tensors. `f` must capture only plain values.
at::Tensor differentiable_by_autograd(const DifferentiableOp& op, at::TensorList inputs,
                                      const std::function<at::Tensor(const Tensors&)>& f);

/// The same for an elementwise `f` of inputs of one shape, whose result has the dtype of the first.
/// It runs on a part of the first dimension at a time, so that what lies between its operators
/// stays in the cache.
at::Tensor elementwise_by_autograd(const DifferentiableOp& op, at::TensorList inputs,
                                   const std::function<at::Tensor(const Tensors&)>& f);

/// Calls visit(part) for parts of the first dimension of x of about `elements` elements, which stay
/// in a cache; part(t) is that part of a tensor t of the same length.
template <class Visit>
void for_each_part(const at::Tensor& x, std::int64_t elements, const Visit& visit) {
  const std::int64_t count = x.size(0), all = std::max<std::int64_t>(1, x.numel()),
                     rows = std::max<std::int64_t>(1, elements * count / all);
  for (std::int64_t first = 0; first < count; first += rows) {
    visit([first, size = std::min(rows, count - first)](const at::Tensor& t) {
      return t.narrow(0, first, size);
    });
  }
}

/// Differentiates f at `inputs` given the gradient of its result. The gradients of inputs that need
/// none are undefined.
Tensors gradients_by_autograd(const std::function<at::Tensor(const Tensors&)>& f,
                              const Tensors& inputs, const std::vector<bool>& needs_input,
                              const at::Tensor& dy);

/// Returns the gradient of x given `dy`, the gradient of y = f(x), by autograd. x must require a
/// gradient.
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy);

// ---- Hooks on saved tensors ----

/// What is kept of a tensor between forward and backward.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  /// Returns the tensor, which is kept no longer. Called at most once.
  virtual at::Tensor take() = 0;
};

/// Decides how ops keep tensors for backward.
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

  SavedTensorHooks* hooks() const { return hooks_; }
  const SavedTensorHooksScope* enclosing() const { return enclosing_; }

 private:
  SavedTensorHooks* hooks_;
  const SavedTensorHooksScope* enclosing_;
};

/// Returns whether this thread has hooks.
bool has_saved_tensor_hooks();
/// Returns what the hooks of this thread keep of a tensor; without hooks, the tensor itself.
/// Returns null for an undefined tensor.
std::shared_ptr<SavedTensor> save_for_backward(const at::Tensor& tensor);
/// Tells the hooks of this thread what all layers of a pass read (SavedTensorHooks::share).
void share_saved_tensors(const std::vector<at::Tensor>& tensors);

/// A tensor as sizes, strides and offset in a storage, without the storage: what is kept of a
/// tensor whose bytes are elsewhere.
class StorageView {
 public:
  /// `origin` is the offset in elements at which the tensor given to of() begins in the storage.
  explicit StorageView(const at::Tensor& tensor, std::int64_t origin = 0)
      : sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        offset_(tensor.storage_offset() - origin) {}
  /// Returns the view of a tensor of the same dtype that holds the storage's elements from the
  /// origin on.
  at::Tensor of(const at::Tensor& elements) const {
    return elements.as_strided(sizes_, strides_, elements.storage_offset() + offset_);
  }

 private:
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t offset_;
};

}  // namespace megatron
