#include "megatron/nn/forward_context.h"

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"
#include "megatron/ops/differentiable.h"

namespace megatron {
namespace {

/// Hooks that do nothing.
class SilentHooks final : public UnitHooks {
 public:
  explicit SilentHooks(bool observes_ops) : observes_ops_(observes_ops) {}
  bool observes_ops() const override { return observes_ops_; }

 private:
  bool observes_ops_;
};

/// Returns x, such that `call` receives its gradient before x passes it on.
at::Tensor on_gradient(const at::Tensor& x, const std::function<void(const at::Tensor&)>& call) {
  Recording recording({.name = "UnitHooksBackward"}, {x});
  return recording.finish(x.alias(), {}, [call](BackwardPass& pass) -> Tensors {
    call(pass.gradients[0]);
    return {pass.gradients[0]};
  });
}

}  // namespace

UnitHooks& UnitHooks::in_second_run() {
  static SilentHooks with_ops(true), without_ops(false);
  return observes_ops() ? with_ops : without_ops;
}

at::Tensor with_after_backward(UnitHooks& hooks, const Module& unit, const at::Tensor& input) {
  return on_gradient(input, [&hooks, &unit](const at::Tensor&) { hooks.after_backward(unit); });
}

at::Tensor with_before_backward(UnitHooks& hooks, const Module& unit, const at::Tensor& output,
                                bool ends_pass) {
  return on_gradient(output, [&hooks, &unit, ends_pass](const at::Tensor& gradient) {
    hooks.before_backward(unit, gradient);
    if (ends_pass)
      torch::autograd::Engine::get_default_engine().queue_callback(
          [&hooks, &unit] { hooks.after_backward(unit); });
  });
}

DropoutSite ForwardContext::dropout(std::string_view path, std::string_view name,
                                    double probability) const {
  if (!training || probability == 0) return {};
  return {.probability = probability,
          .key = philox_key(seed, std::string(path) + "." + std::string(name)),
          .sample_ordinals = sample_ordinals,
          .positions = row_positions};
}

std::int64_t ForwardContext::num_positions() const {
  if (placement == nullptr) return tokens.size(1);
  const std::int64_t count = placement->is_packed() ? std::ssize(placement->cu_seqlens) - 1 : 1;
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t before =
        caches != nullptr ? (*caches)[static_cast<std::size_t>(i)]->length : 0;
    most = std::max(most, before + rows_of_sequence(*placement, i).count);
  }
  return most;
}

void ForwardContext::publish(std::string_view key, const at::Tensor& tensor) const {
  MEGATRON_CHECK(published_tensors != nullptr, "nothing receives the tensor ", key);
  published_tensors->insert_or_assign(std::string(key), tensor);
}

const at::Tensor& ForwardContext::published(std::string_view key) const {
  MEGATRON_CHECK(published_tensors != nullptr && published_tensors->contains(key),
                 "no layer has published the tensor ", key);
  return published_tensors->find(key)->second;
}

}  // namespace megatron
