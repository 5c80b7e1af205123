#include "megatron/inference/scorer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "megatron/base/division.h"

namespace megatron {

std::vector<std::vector<SampledToken>> score_texts(const ModelRunner& model,
                                                   std::span<const ScoredText> texts,
                                                   const ScoreTextsOptions& options) {
  Engine engine(model, options.engine);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto& [ids, num_targets, source, encoded] = texts[i];
    engine.add_request(
        {.prompt = ids,
         .params = {.max_new_tokens = 0, .logprobs = options.num_best, .prompt_logprobs = true},
         .source = source,
         .first_scored = std::ssize(ids) - num_targets,
         .id = i,
         .encoded = encoded});
  }
  std::vector<std::vector<SampledToken>> scores(texts.size());
  std::size_t num_done = 0;
  while (!engine.is_idle()) {
    for (Update& update : engine.step()) {
      if (update.error) std::rethrow_exception(update.error);
      scores[static_cast<std::size_t>(update.request)] = std::move(update.finished->prompt_tokens);
      ++num_done;
    }
    if (options.on_progress) options.on_progress(num_done);
  }
  return scores;
}

Score score_tokens(const ModelRunner& model, std::span<const std::int64_t> ids,
                   const std::string& source, std::span<const std::int64_t> encoded) {
  const std::int64_t num_targets = std::max<std::int64_t>(0, std::ssize(ids) - 1),
                     num_inputs = std::max<std::int64_t>(1, num_targets),
                     num_encoded = std::ssize(encoded);
  const ScoredText text{
      {ids.begin(), ids.end()}, num_targets, source, {encoded.begin(), encoded.end()}};
  const EngineOptions engine{
      .scheduler = {.max_running = 1,
                    .max_step_tokens = num_inputs + num_encoded,
                    .num_blocks = ceil_div(std::max(num_inputs, num_encoded), kBlockPositions),
                    .prefix_cache = false}};
  const auto scores = score_texts(model, {&text, 1}, {.engine = engine});
  Score score;
  for (const SampledToken& token : scores.front()) score.logprobs.push_back(token.logprob);
  const double sum = std::accumulate(score.logprobs.begin(), score.logprobs.end(), 0.0);
  score.loss = score.logprobs.empty() ? std::numeric_limits<double>::quiet_NaN()
                                      : -sum / static_cast<double>(score.logprobs.size());
  return score;
}

}  // namespace megatron
