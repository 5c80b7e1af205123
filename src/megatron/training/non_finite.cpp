#include "megatron/training/non_finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <cmath>
#include <optional>

#include "megatron/transformer/unit_hooks.h"

namespace megatron {
namespace {

bool is_finite(const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

/// "samples 96, 97 of the training order"
std::string sample_list(const Microbatch& microbatch) {
  std::string text;
  for (std::int64_t i = 0; i < microbatch.sample_ordinals.size(0); ++i) {
    text += (i ? ", " : "") + std::to_string(microbatch.sample_ordinals[i].item<std::int64_t>());
  }
  return (microbatch.sample_ordinals.size(0) == 1 ? "sample " : "samples ") + text + " of the training order";
}

std::string place(const std::vector<Microbatch>& batch, std::size_t index) {
  return "microbatch " + std::to_string(index + 1) + " of " + std::to_string(batch.size()) + " (" + sample_list(batch[index]) + ")";
}

std::string advice(const TrainStepOptions& options) {
  return "\n  fix: lower --lr and resume from the last checkpoint, pass over these samples with --iterations-to-skip " +
         std::to_string(options.iteration) + ", or skip such updates with --no-check-for-nan-in-loss-and-grad";
}

std::optional<std::string> first_non_finite_weight(const ParamStore& weights) {
  for (const Parameter* parameter : weights.parameters()) {
    if (!is_finite(parameter->value())) return parameter->name();
  }
  return std::nullopt;
}

/// Remembers the first unit whose output is not finite.
class FirstNonFiniteUnit : public UnitHooks {
 public:
  void after_forward(const Module& unit, const at::Tensor& output) override {
    if (path_.empty() && !is_finite(output)) path_ = unit.path();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Runs the microbatch again, with the same dropout, and says where its activations leave the finite numbers.
std::string non_finite_unit(const TrainStepParts& parts, const Microbatch& microbatch) {
  const at::NoGradGuard no_grad;
  FirstNonFiniteUnit hooks;
  parts.model.set_unit_hooks(&hooks);
  parts.model.forward_step(microbatch, /*training=*/true);
  parts.model.set_unit_hooks(nullptr);
  return hooks.path().empty() ? "every unit's output is finite: the output layer or the loss overflowed"
                              : "the first output that is not finite: of " + hooks.path();
}

/// Whether this microbatch alone gives `parameter` a gradient that is not finite.
bool is_at_fault(const TrainStepParts& parts, const Microbatch& microbatch, const Parameter& parameter) {
  parts.weights.begin_gradients();
  parts.model.forward_step(microbatch, /*training=*/true).loss_sum.backward();
  parts.weights.finish_gradients();
  return !is_finite(parameter.grad());
}

}  // namespace

NonFiniteError non_finite_loss(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch, std::size_t index,
                               double loss) {
  std::string text =
      "iteration " + std::to_string(options.iteration) + ": the loss of " + place(batch, index) + " is " + (std::isnan(loss) ? "NaN" : "infinite");
  const auto weight = first_non_finite_weight(parts.weights);
  text += weight ? "\n  the first weight that is not finite: " + *weight : "\n  every weight is finite";
  text += "\n  " + non_finite_unit(parts, batch[index]);
  return NonFiniteError(text + advice(options));
}

NonFiniteError non_finite_gradient(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch,
                                   const std::string& parameter) {
  std::string text = "iteration " + std::to_string(options.iteration) + ": the gradient of " + parameter + " is not finite (every loss was)";
  const Parameter* found = parts.weights.find(parameter);
  for (std::size_t i = 0; found && i < batch.size(); ++i) {
    if (!is_at_fault(parts, batch[i], *found)) continue;
    text += "\n  first in " + place(batch, i);
    break;
  }
  return NonFiniteError(text + advice(options));
}

}  // namespace megatron
