// Rejects the output of a model whose weights are damaged or diverged.
#pragma once

#include <span>
#include <string>

#include "megatron/models/model.h"

namespace megatron {

/// Throws UserError: names the non-finite values at `place` and the weights of `model` that are not
/// finite.
[[noreturn]] void throw_non_finite_logits(Model& model, const std::string& place,
                                          const std::string& got);

/// Calls throw_non_finite_logits() when a logit is NaN or +infinity, or when all are −infinity: one
/// that is marks an impossible token.
void check_logits(Model& model, std::span<const float> logits, const std::string& place);

}  // namespace megatron
