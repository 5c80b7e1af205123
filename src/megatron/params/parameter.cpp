#include "megatron/params/parameter.h"

#include <ATen/core/grad_mode.h>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {

void Parameter::throw_without_value() const {
  MEGATRON_CHECK(false, name_,
                 is_packed() ? " is read while it is packed" : " is read while it has no storage");
  std::abort();
}

void Parameter::pack() {
  if (is_packed() || spec_.tags.packing == WeightPacking::none || !can_pack(value())) return;
  packed_ = pack_gemm_weight(spec_.tags.packing == WeightPacking::copy ? value().clone() : value());
  if (!is_packed()) packed_ = {};
}

void Parameter::contribute(at::Tensor gradient) {
  contribute([gradient = std::move(gradient)](at::Tensor& grad, bool fresh) {
    if (fresh) {
      grad.copy_(gradient);
    } else {
      grad.add_(gradient);
    }
  });
}

at::Tensor tracked_copy(Parameter& parameter) {
  Recording recording(
      {.name = "TrackedParameterBackward", .trains_parameters = parameter.is_trained()}, {});
  const at::Tensor& value = parameter.precise_value();
  return recording.finish(value.to(compute_type(value.scalar_type()), false, /*copy=*/true), {},
                          [&parameter](BackwardPass& pass) -> Tensors {
                            parameter.contribute(pass.gradients[0]);
                            return {};
                          });
}

at::Tensor tracked(Parameter& parameter) {
  if (!at::GradMode::is_enabled() || !parameter.is_trained()) return parameter.value();
  Recording recording({.name = "TrackedParameterBackward", .trains_parameters = true}, {});
  return recording.finish(parameter.value().alias(), {},
                          [&parameter](BackwardPass& pass) -> Tensors {
                            parameter.contribute(pass.gradients[0]);
                            return {};
                          });
}

}  // namespace megatron
