#include "megatron/ops/differentiable.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable_info.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "megatron/parallel/current_layer.h"

namespace megatron {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::VariableInfo;

/// Autograd's own hooks and modes are per thread, and so are these.
thread_local const SavedTensorHooksScope* innermost = nullptr;

class WholeTensor final : public SavedTensor {
 public:
  explicit WholeTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor take() override { return std::exchange(tensor_, at::Tensor()); }

 private:
  at::Tensor tensor_;
};

/// Offers the hooks of this thread to compute `output` again (SavedTensorHooks::take_offer).
void offer_recomputation(const at::Tensor& output, const std::function<at::Tensor()>& compute) {
  for (const SavedTensorHooksScope* scope = innermost; scope != nullptr; scope = scope->enclosing())
    if (scope->hooks()->take_offer(output, compute)) return;
}

/// A tensor that a recomputation may read before the op's backward takes it.
class SharedTensor final : public SavedTensor {
 public:
  explicit SharedTensor(std::shared_ptr<SavedTensor> saved) : saved_(std::move(saved)) {}
  at::Tensor read() {
    if (saved_ != nullptr) tensor_ = std::exchange(saved_, nullptr)->take();
    return tensor_;
  }
  at::Tensor take() override {
    read();
    return std::exchange(tensor_, at::Tensor());
  }

 private:
  std::shared_ptr<SavedTensor> saved_;
  at::Tensor tensor_;
};

bool is_recorded(const DifferentiableOp& op, at::TensorList inputs) {
  if (!at::GradMode::is_enabled()) return false;
  if (op.trains_parameters) return true;
  for (const at::Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

torch::autograd::edge_list edges_of(at::TensorList inputs) {
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                    : torch::autograd::Edge());
  }
  return edges;
}

}  // namespace

SavedTensorHooksScope::SavedTensorHooksScope(SavedTensorHooks* hooks)
    : hooks_(hooks), enclosing_(innermost) {
  if (hooks_ != nullptr) innermost = this;
}

SavedTensorHooksScope::~SavedTensorHooksScope() { innermost = enclosing_; }

bool has_saved_tensor_hooks() { return innermost != nullptr; }

std::shared_ptr<SavedTensor> save_for_backward(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const at::Tensor plain = tensor.detach();
  for (const SavedTensorHooksScope* scope = innermost; scope != nullptr; scope = scope->enclosing())
    if (std::shared_ptr<SavedTensor> saved = scope->hooks()->save(plain)) return saved;
  return std::make_shared<WholeTensor>(plain);
}

void share_saved_tensors(const std::vector<at::Tensor>& tensors) {
  for (const SavedTensorHooksScope* scope = innermost; scope != nullptr; scope = scope->enclosing())
    scope->hooks()->share(tensors);
}

/// The autograd node of one call.
class Recording::Node : public torch::autograd::Node {
 public:
  Node(const DifferentiableOp& op, torch::autograd::edge_list edges)
      : torch::autograd::Node(std::move(edges)), op_(op) {}

  /// Saves the tensors that backward reads. Outputs among them must already have their history.
  void save(const Tensors& tensors) {
    hooked_ = has_saved_tensor_hooks();
    for (const at::Tensor& tensor : tensors) {
      if (hooked_) {
        saved_by_hooks_.push_back(save_for_backward(tensor));
      } else {
        saved_.emplace_back(tensor,
                            /*is_output=*/tensor.defined() && tensor.grad_fn().get() == this);
      }
    }
  }

  /// Takes the backward function and the shapes of the outputs.
  void keep(Recorded& recorded) {
    backward_ = std::move(recorded.backward);
    for (std::size_t i = 0; i < recorded.num_differentiable; ++i) {
      outputs_.emplace_back(recorded.outputs[i]);
    }
    if (hooked_ && recorded.recompute_last) offer(recorded);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    const LayerScope scope(layer_);
    TORCH_CHECK(backward_, torch::autograd::ERR_BACKWARD_TWICE);
    BackwardPass pass{.saved = {}, .gradients = std::move(gradients), .needs_input = {}};
    for (const SavedVariable& saved : saved_) pass.saved.push_back(saved.unpack(getptr()));
    for (const auto& saved : saved_by_hooks_)
      pass.saved.push_back(saved != nullptr ? saved->take() : at::Tensor());
    for (std::size_t i = 0; i < num_outputs(); ++i) {
      pass.needs_input.push_back(task_should_compute_output(i));
    }
    at::OptionalDeviceGuard guard;
    for (std::size_t i = 0; i < pass.gradients.size() && !op_.allows_undefined_gradients; ++i) {
      if (!pass.gradients[i].defined()) pass.gradients[i] = outputs_[i].zeros(guard);
    }
    Tensors found = backward_(pass);
    TORCH_INTERNAL_ASSERT(found.size() == num_outputs(), op_.name, " returned ", found.size(),
                          " gradients for ", num_outputs(), " inputs");
    return found;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable& saved : saved_) saved.reset_data();
    saved_by_hooks_.clear();
    backward_ = nullptr;
  }

  std::string name() const override { return op_.name; }

 private:
  /// Lets the hooks compute the last output again from what the op has saved.
  void offer(const Recorded& recorded) {
    std::vector<std::shared_ptr<SharedTensor>> shared;
    for (std::shared_ptr<SavedTensor>& saved : saved_by_hooks_) {
      shared.push_back(saved != nullptr ? std::make_shared<SharedTensor>(saved) : nullptr);
      saved = shared.back();
    }
    offer_recomputation(recorded.outputs.back(), [compute = recorded.recompute_last, shared] {
      Tensors tensors;
      for (const auto& saved : shared)
        tensors.push_back(saved != nullptr ? saved->read() : at::Tensor());
      const at::NoGradGuard no_grad;
      return compute(tensors);
    });
  }

  DifferentiableOp op_;
  const LayerName layer_ = current_layer();
  BackwardFunction backward_;
  bool hooked_ = false;  ///< decides where the tensors are
  std::vector<SavedVariable> saved_;
  std::vector<std::shared_ptr<SavedTensor>> saved_by_hooks_;
  std::vector<VariableInfo> outputs_;
};

Recording::Recording(const DifferentiableOp& op, at::TensorList inputs)
    : inputs_(inputs.begin(), inputs.end()) {
  const at::AutoGradMode outside(is_enabled_outside_);
  if (is_recorded(op, inputs))
    node_ = {new Node(op, edges_of(inputs)), torch::autograd::deleteNode};
}

void Recording::save(const Tensors& tensors) {
  const at::AutoGradMode outside(is_enabled_outside_);
  if (node_ != nullptr) node_->save(tensors);
}

Tensors Recording::finish(Recorded recorded) {
  const at::AutoGradMode outside(is_enabled_outside_);
  if (node_ == nullptr) return std::move(recorded.outputs);
  for (std::size_t i = 0; i < recorded.num_differentiable; ++i) {
    at::Tensor& output = recorded.outputs[i];
    // An output that is also an input gets its own history.
    for (const at::Tensor& input : inputs_) {
      if (output.is_same(input)) output = output.detach();
    }
    torch::autograd::set_history(output, node_);
  }
  node_->save(recorded.saved);
  node_->keep(recorded);
  return std::move(recorded.outputs);
}

at::Tensor Recording::finish(const at::Tensor& output, Tensors saved, BackwardFunction backward) {
  return finish({.outputs = {output}, .saved = std::move(saved), .backward = std::move(backward)})
      .front();
}

Tensors gradients_by_autograd(const std::function<at::Tensor(const Tensors&)>& f,
                              const Tensors& inputs, const std::vector<bool>& needs_input,
                              const at::Tensor& dy) {
  const at::AutoGradMode records(true);
  Tensors leaves, wanted;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].detach().set_requires_grad(needs_input[i]));
    if (needs_input[i]) wanted.push_back(leaves.back());
  }
  Tensors found = torch::autograd::grad({f(leaves)}, wanted, {dy});
  Tensors gradients(leaves.size());
  for (std::size_t i = leaves.size(); i-- > 0;) {
    if (!needs_input[i]) continue;
    gradients[i] = found.back();
    found.pop_back();
  }
  return gradients;
}

namespace {

constexpr std::int64_t kPartElements = 1 << 16;

template <class Part>
Tensors each_part(const Tensors& tensors, const Part& part) {
  Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(part(tensor));
  return parts;
}

/// Returns whether parts are worth while: only the CPU has a cache to stay in.
bool has_parts(const at::Tensor& x) { return x.is_cpu() && x.dim() > 0 && x.numel() > 0; }

}  // namespace

at::Tensor differentiable_by_autograd(const DifferentiableOp& op, at::TensorList inputs,
                                      const std::function<at::Tensor(const Tensors&)>& f) {
  Recording recording(op, inputs);
  const Tensors given(inputs.begin(), inputs.end());
  recording.save(given);
  return recording.finish(f(given), {}, [f](BackwardPass& pass) -> Tensors {
    // Backward of some of ATen's operators has no shapes on the meta device.
    if (pass.gradients[0].is_meta()) return pass.saved;
    return gradients_by_autograd(f, pass.saved, pass.needs_input, pass.gradients[0]);
  });
}

at::Tensor elementwise_by_autograd(const DifferentiableOp& op, at::TensorList inputs,
                                   const std::function<at::Tensor(const Tensors&)>& f) {
  if (!has_parts(inputs[0])) return differentiable_by_autograd(op, inputs, f);
  Recording recording(op, inputs);
  const Tensors given(inputs.begin(), inputs.end());
  recording.save(given);
  const at::Tensor out = at::empty(given[0].sizes(), given[0].options());
  for_each_part(out, kPartElements,
                [&](const auto& part) { part(out).copy_(f(each_part(given, part))); });
  return recording.finish(out, {}, [f](BackwardPass& pass) -> Tensors {
    Tensors gradients(pass.saved.size());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (pass.needs_input[i])
        gradients[i] = at::empty(pass.saved[i].sizes(), pass.saved[i].options());
    for_each_part(pass.gradients[0], kPartElements, [&](const auto& part) {
      const Tensors found = gradients_by_autograd(f, each_part(pass.saved, part), pass.needs_input,
                                                  part(pass.gradients[0]));
      for (std::size_t i = 0; i < gradients.size(); ++i)
        if (gradients[i].defined()) part(gradients[i]).copy_(found[i]);
    });
    return gradients;
  });
}

at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy) {
  return torch::autograd::grad({y}, {x}, {dy}).front();
}

}  // namespace megatron
