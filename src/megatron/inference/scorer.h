// Scores texts: computes the log-probabilities of their tokens given the preceding ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "megatron/inference/engine.h"

namespace megatron {

/// A text, of which the last `num_targets` tokens are scored: fewer than it has.
struct ScoredText {
  std::vector<std::int64_t> ids;
  std::int64_t num_targets = 0;
  std::string source = {};                 ///< names the text in errors
  std::vector<std::int64_t> encoded = {};  ///< the text of the encoder, which `ids` answers
};

struct ScoreTextsOptions {
  EngineOptions engine = {};
  std::int64_t num_best = 0;  ///< how many of the most likely tokens to return for each target
  std::function<void(std::size_t num_done)> on_progress = {};  ///< called when texts are done
};

/// Returns the targets of each text with their log-probabilities given all tokens before them. The
/// last token of a text needs no position. UserError that names the text. `model` must have its
/// weights bound. Collective over the ranks of the model.
std::vector<std::vector<SampledToken>> score_texts(const ModelRunner& model,
                                                   std::span<const ScoredText> texts,
                                                   const ScoreTextsOptions& options = {});

struct Score {
  std::vector<double> logprobs;  ///< [ids − 1], natural logarithm: log p(ids[i + 1] | ids[0 … i])
  double loss = 0;               ///< −mean of logprobs; NaN when there are none
};

/// Scores one sequence of at least one id in one pass, or in several where the logits of all its
/// tokens take too much memory. `encoded`: the text of the encoder of a model that has one. Like
/// score_texts().
Score score_tokens(const ModelRunner& model, std::span<const std::int64_t> ids,
                   const std::string& source, std::span<const std::int64_t> encoded = {});

}  // namespace megatron
