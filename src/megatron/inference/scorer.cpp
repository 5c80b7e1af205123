#include "megatron/inference/scorer.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/sampling/sampling.h"

namespace megatron {

namespace {

// Maximum number of logits in memory: 256 MiB in float32.
constexpr std::int64_t kMaxLogitElements = std::int64_t{1} << 26;

}  // namespace

Score score_tokens(const ModelRunner& model, std::span<const std::int64_t> ids,
                   const std::string& source) {
  check_token_ids(ids, model.config(), source);
  const c10::InferenceMode no_gradients;
  const auto num_inputs = static_cast<std::int64_t>(ids.size()) - 1;
  const std::int64_t vocab_size = model.config().vocab_size;
  const std::int64_t chunk_size = std::max<std::int64_t>(1, kMaxLogitElements / vocab_size);
  Score score;
  SequenceCache cache;
  const Caches caches{&cache};
  for (std::int64_t start = 0; start < num_inputs; start += chunk_size) {
    const std::int64_t count = std::min(chunk_size, num_inputs - start);
    const Microbatch tokens = microbatch_of(
        {ids.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(count))});
    // Log-probabilities are in double, unlike the token losses that a pass could give.
    const at::Tensor logits = model
                                  .infer({.microbatch = tokens,
                                          .wants = Wants::logits,
                                          .caches = num_inputs > chunk_size ? &caches : nullptr})
                                  .to(c10::kCPU, c10::kFloat)
                                  .contiguous();
    MEGATRON_CHECK(logits.numel() == count * vocab_size, "logits of ", count, " tokens have ",
                   logits.numel(), " elements");
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<const float> row(logits.const_data_ptr<float>() + i * vocab_size,
                                       static_cast<std::size_t>(vocab_size));
      const double logprob = log_probability(row, ids[static_cast<std::size_t>(start + i + 1)]);
      if (!std::isfinite(logprob)) {
        check_logits(model.model(), row, source + ", ids[" + std::to_string(start + i + 1) + "]");
        throw_non_finite_logits(
            model.model(),
            source + ": the log-probability of ids[" + std::to_string(start + i + 1) + "]",
            std::to_string(logprob));
      }
      score.logprobs.push_back(logprob);
    }
  }
  const double sum = std::accumulate(score.logprobs.begin(), score.logprobs.end(), 0.0);
  score.loss = num_inputs > 0 ? -sum / static_cast<double>(num_inputs)
                              : std::numeric_limits<double>::quiet_NaN();
  return score;
}

}  // namespace megatron
