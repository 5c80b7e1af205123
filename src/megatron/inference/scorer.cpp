#include "megatron/inference/scorer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "megatron/base/division.h"
#include "megatron/inference/engine.h"

namespace megatron {

Score score_tokens(const ModelRunner& model, std::span<const std::int64_t> ids,
                   const std::string& source) {
  const std::int64_t num_inputs = std::max<std::int64_t>(1, std::ssize(ids) - 1);
  Engine engine(model, {.scheduler = {.max_running = 1,
                                      .max_step_tokens = num_inputs,
                                      .num_blocks = ceil_div(num_inputs, kBlockPositions),
                                      .prefix_cache = false}});
  engine.add_request({.prompt = {ids.begin(), ids.end()},
                      .params = {.max_new_tokens = 0, .prompt_logprobs = true},
                      .source = source});
  Score score;
  while (!engine.is_idle())
    for (const Update& update : engine.step())
      for (const SampledToken& token : update.finished->prompt_tokens)
        score.logprobs.push_back(token.logprob);
  const double sum = std::accumulate(score.logprobs.begin(), score.logprobs.end(), 0.0);
  score.loss = score.logprobs.empty() ? std::numeric_limits<double>::quiet_NaN()
                                      : -sum / static_cast<double>(score.logprobs.size());
  return score;
}

}  // namespace megatron
