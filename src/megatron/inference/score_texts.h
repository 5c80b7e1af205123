// Scores the ends of many texts, several in a pass: answers of questions, windows of a long text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "megatron/inference/sampling/sequence_sampler.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

/// A text, of which the last `num_targets` tokens are scored: fewer than it has, and at least one.
struct ScoredText {
  std::vector<std::int64_t> ids;
  std::int64_t num_targets = 0;
  std::string source = {};  ///< names the text in errors
};

struct ScoreTextsOptions {
  std::int64_t num_best = 0;  ///< how many of the most likely tokens to return for each target
  std::function<void(std::size_t num_done)> on_progress = {};  ///< called after each pass
};

/// Returns the targets of each text with their log-probabilities given all tokens before them,
/// which do not depend on the other texts where our GEMM runs. UserError that names the text. The
/// model must have its weights bound. Collective over the ranks of the model.
std::vector<std::vector<SampledToken>> score_texts(const ModelRunner& model,
                                                   std::span<const ScoredText> texts,
                                                   const ScoreTextsOptions& options = {});

}  // namespace megatron
