// Answers of a model whose weights are damaged or diverged are refused, not printed.
#pragma once

#include <span>
#include <string>

#include "megatron/models/language_model.h"

namespace megatron {

/// UserError that says what of `place` is not finite, and which weights of `model` are not either.
[[noreturn]] void throw_non_finite_logits(LanguageModel& model, const std::string& place,
                                          const std::string& got);

/// throw_non_finite_logits when a logit is NaN or +infinity; −infinity is an impossible token.
void check_logits(LanguageModel& model, std::span<const float> logits, const std::string& place);

}  // namespace megatron
