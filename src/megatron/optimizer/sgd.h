// SGD with momentum and L2 decay, as torch.optim.SGD.
#pragma once

#include <memory>

#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/update_rule.h"

namespace megatron {

struct OptimizerConfig;

/// Creates the rule for the selected parameters of `store`, which must outlive it, as must `main`.
std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config, const ParamStore& store,
                                     const MainParameters& main,
                                     ParameterSelector selects = every_parameter);

}  // namespace megatron
