#include "megatron/ops/saved_tensors.h"

#include <utility>

namespace megatron {
namespace {

/// Autograd's own hooks and modes are per thread, and so are these.
thread_local const SavedTensorHooksScope* innermost = nullptr;

class WholeTensor final : public SavedTensor {
 public:
  explicit WholeTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor take() override { return std::exchange(tensor_, at::Tensor()); }

 private:
  at::Tensor tensor_;
};

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
  for (const SavedTensorHooksScope* scope = innermost; scope != nullptr;
       scope = scope->enclosing_) {
    if (std::shared_ptr<SavedTensor> saved = scope->hooks_->save(plain)) return saved;
  }
  return std::make_shared<WholeTensor>(plain);
}

void offer_recomputation(const at::Tensor& output, const std::function<at::Tensor()>& compute) {
  for (const SavedTensorHooksScope* scope = innermost; scope != nullptr;
       scope = scope->enclosing_) {
    if (scope->hooks_->take_offer(output, compute)) return;
  }
}

void share_saved_tensors(const std::vector<at::Tensor>& tensors) {
  for (const SavedTensorHooksScope* scope = innermost; scope != nullptr; scope = scope->enclosing_)
    scope->hooks_->share(tensors);
}

}  // namespace megatron
