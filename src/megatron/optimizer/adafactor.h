// Adafactor (Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
// 2018) with the learning rate of the schedule, as transformers' Adafactor without relative steps.
// A matrix keeps the means of its squared gradients over rows and over columns instead of a second
// moment for each element.
#pragma once

#include <memory>

#include "megatron/optimizer/main_parameters.h"
#include "megatron/optimizer/update_rule.h"

namespace megatron {

struct OptimizerConfig;

/// Creates the rule for the selected parameters of `store`, which must outlive it, as must `main`.
/// Pieces must be whole parameters (DataParallelOptions::keeps_parameters_whole). The means of a
/// parameter that ranks divide are summed over their axes, so update() is collective over them.
std::unique_ptr<UpdateRule> make_adafactor(const OptimizerConfig& config, const ParamStore& store,
                                           const MainParameters& main,
                                           ParameterSelector selects = every_parameter);

}  // namespace megatron
