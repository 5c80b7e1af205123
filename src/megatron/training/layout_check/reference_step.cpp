#include "megatron/training/layout_check/reference_step.h"

#include <ATen/ops/zeros.h>

#include <ostream>

#include "megatron/base/error.h"
#include "megatron/training/layout_check/observed_step.h"
#include "megatron/training/loop/setup.h"

namespace megatron {
namespace {

class Recorder final : public StepObserver {
 public:
  explicit Recorder(ReferenceStep& step) : step_(step) {}

  void activation(const std::string& op, const Microbatch& microbatch,
                  const at::Tensor& output) override {
    auto& of_op = step_.activations[op];
    if (of_op.empty()) step_.ops.push_back(op);
    of_op.try_emplace(microbatch.sample_ordinals[0].item<std::int64_t>(),
                      output.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
  }
  void initial_weight(const Parameter& parameter, const at::Tensor& value) override {
    keep(step_.initial_weights, parameter, value);
  }
  void gradient(const Parameter& parameter, const at::Tensor& gradient) override {
    keep(step_.gradients, parameter, gradient);
  }
  void updated_weight(const Parameter& parameter, const at::Tensor& value) override {
    keep(step_.updated_weights, parameter, value);
  }

 private:
  static void keep(NamedTensors& all, const Parameter& parameter, const at::Tensor& value) {
    const at::Tensor whole = at::zeros(parameter.sharding().global_shape, at::kDouble);
    copy_slices(value.detach(), parameter.slices(), whole);
    all.emplace(parameter.name(), whole);
  }

  ReferenceStep& step_;
};

}  // namespace

const char* name_of(CheckedKind kind) {
  switch (kind) {
    case CheckedKind::initial_weight:
      return "initial weight";
    case CheckedKind::activation:
      return "activation";
    case CheckedKind::loss:
      return "loss";
    case CheckedKind::gradient:
      return "gradient";
    case CheckedKind::grad_norm:
      return "grad norm";
    case CheckedKind::updated_weight:
      return "updated weight";
  }
  return "";
}

const NamedTensors& ReferenceStep::of(CheckedKind kind) const {
  switch (kind) {
    case CheckedKind::initial_weight:
      return initial_weights;
    case CheckedKind::gradient:
      return gradients;
    case CheckedKind::updated_weight:
      return updated_weights;
    case CheckedKind::activation:
    case CheckedKind::loss:
    case CheckedKind::grad_norm:
      break;
  }
  throw InternalError("these are no tensors of parameters");
}

ReferenceStep run_reference_step(const RunConfig& alone, const ModelFamilies& families) {
  std::ostream silent(nullptr);
  Trainer trainer =
      set_up(alone, silent,
             {.cpus = {.count = kUnboundCpus}, .params_dtype = at::kDouble, .families = &families});
  ReferenceStep step;
  Recorder recorder(step);
  const TrainStepResult result = run_observed_step(trainer, recorder);
  step.loss = result.loss();
  step.grad_norm = result.update.grad_norm;
  return step;
}

}  // namespace megatron
