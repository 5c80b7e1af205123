#include "megatron/optimizer/adamw.h"

#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/elementwise_rule.h"
#include "megatron/optimizer/optimizer_operations.h"

namespace megatron {

std::unique_ptr<UpdateRule> make_adamw(const OptimizerConfig& config, const ParamStore& store,
                                       const MainParameters& main, ParameterSelector selects) {
  const kernels::AdamwRule rule{
      .beta1 = config.adam_beta1, .beta2 = config.adam_beta2, .eps = config.adam_eps};
  return std::make_unique<ElementwiseRule>(
      config, store, main,
      ElementwiseRule::Options{
          .selects = std::move(selects),
          .states = {{"exp_avg", config.exp_avg_dtype},
                     {"exp_avg_sq", config.exp_avg_sq_dtype, true}},
          .update = [rule, update = optimizer_operations(store.device()).adamw](
                        const kernels::UpdatePlan& plan) { update(plan, rule); }});
}

}  // namespace megatron
