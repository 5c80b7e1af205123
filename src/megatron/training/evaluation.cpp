#include "megatron/training/evaluation.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace megatron {

std::optional<double> evaluate(LanguageModel& model, MicrobatchSource& source, std::int64_t num_microbatches, const Meeting& dp,
                               const std::function<bool()>& stop) {
  const c10::NoGradGuard no_gradients;
  double loss_sum = 0, tokens = 0;
  for (std::int64_t i = 0; i < num_microbatches; ++i) {
    if (stop()) return std::nullopt;
    Microbatch microbatch = source.next();
    microbatch.sample_ordinals = at::zeros({microbatch.at("tokens").size(0)}, microbatch.at("tokens").options().dtype(at::kLong));
    const StepOutput output = model.forward_step(microbatch, /*training=*/false);
    loss_sum += output.loss_sum.item<double>();
    tokens += output.count.item<double>();
  }
  const std::vector<double> all = sums(dp, {loss_sum, tokens}, "evaluation");
  return all[0] / std::max(all[1], 1.0);
}

}  // namespace megatron
