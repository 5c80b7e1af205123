#include "megatron/optimizer/sgd.h"

#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/elementwise_rule.h"
#include "megatron/optimizer/optimizer_operations.h"

namespace megatron {

std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config, const ParamStore& store,
                                     const MainParameters& main, ParameterSelector selects) {
  const kernels::SgdRule rule{.momentum = config.sgd_momentum};
  ElementwiseRule::Options options{
      .selects = std::move(selects),
      .states = {},
      .update = [rule, update = optimizer_operations(store.device()).sgd](
                    const kernels::UpdatePlan& plan) { update(plan, rule); }};
  if (config.sgd_momentum != 0) options.states = {{"momentum_buffer", "fp32"}};
  return std::make_unique<ElementwiseRule>(config, store, main, std::move(options));
}

}  // namespace megatron
