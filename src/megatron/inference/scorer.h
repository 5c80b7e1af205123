// Scores text: computes the log-probability of every token given the preceding ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/pipeline/model_runner.h"

namespace megatron {

struct Score {
  std::vector<double> logprobs;  ///< [ids − 1], natural logarithm: log p(ids[i + 1] | ids[0 … i])
  double loss = 0;               ///< −mean of logprobs; NaN when there are none
};

/// Scores one sequence of at least one id. Errors are UserErrors that name `source`. `model` must
/// have its weights bound. An engine computes long sequences in chunks, so that logits exist for a
/// bounded number of tokens.
Score score_tokens(const ModelRunner& model, std::span<const std::int64_t> ids,
                   const std::string& source);

}  // namespace megatron
