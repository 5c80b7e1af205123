#include "megatron/inference/sampling/sequence_sampler.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"

namespace megatron {
namespace {

SampledToken score_token(const GivenRow& row) {
  const LogSoftmax log_softmax(row.logits);
  const auto logprob = [&](std::int64_t id) {
    return log_softmax(row.logits[static_cast<std::size_t>(id)]);
  };
  SampledToken token{.id = row.id, .logprob = logprob(row.id)};
  for (const std::int64_t id : best_tokens(row.logits, row.num_best))
    token.best.push_back({id, logprob(id)});
  return token;
}

/// Returns a token for each row, in parallel.
template <class Row, class Choose>
std::vector<SampledToken> tokens_of(std::span<const Row> rows, const Choose& choose) {
  // Fewer logits than this are not worth a thread.
  constexpr std::int64_t kGrain = std::int64_t{1} << 14;
  std::vector<SampledToken> tokens(rows.size());
  if (rows.empty()) return tokens;
  const std::int64_t vocab_size = std::max<std::int64_t>(1, std::ssize(rows.front().logits));
  at::parallel_for(0, std::ssize(rows), std::max<std::int64_t>(1, kGrain / vocab_size),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (auto i = static_cast<std::size_t>(begin);
                          i < static_cast<std::size_t>(end); ++i)
                       tokens[i] = choose(rows[i]);
                   });
  return tokens;
}

}  // namespace

SequenceSampler::SequenceSampler(const SamplingParams& params, std::span<const std::int64_t> prompt,
                                 SamplingSite site)
    : params_(&params), site_(site) {
  if (params.repetition_penalty != 1)
    for (const std::int64_t id : prompt) counts_.emplace(id, 0);
}

void SequenceSampler::append(std::int64_t id) {
  ++num_new_tokens_;
  ++counts_[id];
}

bool SequenceSampler::has_penalties() const {
  return params_->repetition_penalty != 1 || params_->presence_penalty != 0 ||
         params_->frequency_penalty != 0 || !params_->logit_bias.empty() || !may_stop();
}

void SequenceSampler::apply_penalties(std::span<float> logits) const {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto is_token = [&](std::int64_t id) { return id >= 0 && id < std::ssize(logits); };
  const auto logit = [&](std::int64_t id) -> float& {
    return logits[static_cast<std::size_t>(id)];
  };
  if (!may_stop()) {
    for (const std::int64_t id : params_->stop_token_ids)
      if (is_token(id)) logit(id) = -std::numeric_limits<float>::infinity();
  }
  for (const LogitBias& one : params_->logit_bias) logit(one.id) += static_cast<float>(one.bias);
  const auto repetition = static_cast<float>(params_->repetition_penalty);
  const auto frequency = static_cast<float>(params_->frequency_penalty);
  const auto presence = static_cast<float>(params_->presence_penalty);
  for (const auto& [id, count] : counts_) {
    float& x = logit(id);
    if (repetition != 1) x = x > 0 ? std::min(x / repetition, kLargest) : x * repetition;
    x -= frequency * static_cast<float>(count);
    if (count > 0) x -= presence;
  }
}

SampledToken SequenceSampler::sample(std::span<const float> logits, std::int64_t position) const {
  SamplingSite site = site_;
  site.position = static_cast<std::uint64_t>(position);
  std::vector<float> changed;
  if (has_penalties()) {
    changed.assign(logits.begin(), logits.end());
    apply_penalties(changed);
    if (!are_sound_logits(changed))
      throw UserError({"--min-new-tokens", "every token that the model allows ends the text",
                       "give a smaller number"});
  }
  const std::int64_t id =
      sample_token(changed.empty() ? logits : std::span<const float>(changed), *params_, site);
  if (!params_->needs_logprobs()) return {id};
  return score_token({logits, id, params_->logprobs});
}

std::vector<SampledToken> score_rows(std::span<const GivenRow> rows) {
  return tokens_of(rows, score_token);
}

std::vector<SampledToken> sample_rows(std::span<const SamplingRow> rows) {
  return tokens_of(
      rows, [](const SamplingRow& row) { return row.sampler->sample(row.logits, row.position); });
}

}  // namespace megatron
