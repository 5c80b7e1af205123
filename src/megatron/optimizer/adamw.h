// AdamW (Loshchilov and Hutter 2019), with Megatron's parameter groups.
#pragma once

#include <memory>

#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/update_rule.h"

namespace megatron {

struct OptimizerConfig;

/// Creates the rule for the selected parameters of `store`, which must outlive it, as must `main`.
std::unique_ptr<UpdateRule> make_adamw(const OptimizerConfig& config, const ParamStore& store,
                                       const MainParameters& main,
                                       ParameterSelector selects = every_parameter);

}  // namespace megatron
