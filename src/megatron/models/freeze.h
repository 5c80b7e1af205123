// Freezing: which parameters a run does not train, by regular expressions that match somewhere in
// their names (--train-only, then --freeze).
#pragma once

#include <string>
#include <vector>

#include "megatron/models/model.h"

namespace megatron {

struct OptimizerConfig;

/// Freezes the parameters of a model, or of the part of it that a rank holds, before they are
/// bound. Throws a UserError for a text that is no regular expression.
void freeze_parameters(Model& model, const OptimizerConfig& config);

/// Freezes a whole model. Returns a table of the numbers of weights that train and that are frozen,
/// by unit; "" when all train. Throws a UserError when an expression matches no name or nothing is
/// left to train.
std::string freeze_whole_model(Model& model, const OptimizerConfig& config);

/// Removes the expressions of a flag that match no parameter of `model` and returns them.
std::vector<std::string> take_unmatched(Model& model, const std::string& flag,
                                        std::vector<std::string>& expressions);

}  // namespace megatron
