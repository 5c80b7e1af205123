#include "megatron/inference/sampling/sequence_sampler.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Fewer logits than this are not worth a thread.
constexpr std::int64_t kGrain = std::int64_t{1} << 14;

SampledToken score(const GivenRow& row) {
  const LogSoftmax log_softmax(row.logits);
  const auto logprob = [&](std::int64_t id) {
    return log_softmax(row.logits[static_cast<std::size_t>(id)]);
  };
  SampledToken token{.id = row.id, .logprob = logprob(row.id)};
  for (const std::int64_t id : best_tokens(row.logits, row.num_best))
    token.best.push_back({id, logprob(id)});
  return token;
}

}  // namespace

std::vector<SampledToken> score_rows(std::span<const GivenRow> rows) {
  std::vector<SampledToken> tokens(rows.size());
  const std::int64_t vocab_size = rows.empty() ? 1 : std::ssize(rows.front().logits);
  at::parallel_for(0, std::ssize(rows), std::max<std::int64_t>(1, kGrain / vocab_size),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (auto i = static_cast<std::size_t>(begin);
                          i < static_cast<std::size_t>(end); ++i)
                       tokens[i] = score(rows[i]);
                   });
  return tokens;
}

SequenceSampler::SequenceSampler(const SamplingParams& params, std::span<const std::int64_t> prompt,
                                 SamplingSite site)
    : params_(&params), site_(site) {
  if (params.repetition_penalty != 1)
    for (const std::int64_t id : prompt) counts_.emplace(id, 0);
}

void SequenceSampler::append(std::int64_t id) {
  ++num_new_tokens_;
  if (reads_counts()) ++counts_[id];
}

bool SequenceSampler::reads_counts() const {
  return params_->repetition_penalty != 1 || params_->presence_penalty != 0 ||
         params_->frequency_penalty != 0;
}

bool SequenceSampler::has_penalties() const {
  return reads_counts() || !params_->logit_bias.empty() || !may_stop();
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

std::vector<float> SequenceSampler::penalized(std::span<const float> logits) const {
  if (!has_penalties()) return {};
  std::vector<float> changed(logits.begin(), logits.end());
  apply_penalties(changed);
  return changed;
}

SamplingSite SequenceSampler::site_at(std::int64_t position) const {
  return {site_.prompt, static_cast<std::uint64_t>(position), site_.sample};
}

bool SequenceSampler::is_stop_token(std::int64_t id) const {
  return std::ranges::count(params_->stop_token_ids, id) > 0;
}

SampledToken SequenceSampler::sample(std::span<const float> logits, std::int64_t position,
                                     const DraftToken* draft) const {
  const std::vector<float> changed = penalized(logits);
  const std::span<const float> used = changed.empty() ? logits : changed;
  if (!changed.empty() && !are_sound_logits(changed))
    throw UserError({"--min-new-tokens", "every token that the model allows ends the text",
                     "give a smaller number"});
  const SamplingSite site = site_at(position);
  const bool has_choice = draft != nullptr && !draft->distribution.empty();
  const std::int64_t id = has_choice
                              ? draw_with_draft(*draft, sampling_distribution(used, *params_),
                                                static_cast<std::uint64_t>(params_->seed), site)
                              : sample_token(used, *params_, site);
  return params_->needs_logprobs() ? score({logits, id, params_->logprobs}) : SampledToken{id};
}

std::optional<DraftToken> SequenceSampler::guess(std::span<const float> logits,
                                                 std::int64_t position, bool samples) const {
  const std::vector<float> changed = penalized(logits);
  const std::span<const float> used = changed.empty() ? logits : changed;
  if (!are_sound_logits(used)) return std::nullopt;
  const SamplingSite site = site_at(position);
  if (!samples || params_->temperature == 0) return DraftToken{sample_token(used, *params_, site)};
  std::vector<TokenProbability> all = sampling_distribution(used, *params_);
  const auto seed = static_cast<std::uint64_t>(params_->seed);
  const std::int64_t id = draw_token(all, sampling_uniform(seed, site, "draft"));
  return DraftToken{id, std::move(all)};
}

std::vector<SampledRun> sample_runs(
    std::span<const SamplingRun> runs,
    const std::function<void(std::size_t, std::span<const float>, std::int64_t)>& check) {
  std::vector<SampledRun> results(runs.size());
  const auto sample = [&](std::size_t index) {
    const auto& [own, logits, position, drafts] = runs[index];
    const std::size_t vocab_size = logits.size() / (1 + drafts.size());
    std::optional<SequenceSampler> ahead;  // which has counted the accepted drafts
    for (std::size_t i = 0; i <= drafts.size(); ++i) {
      const std::span<const float> row = logits.subspan(i * vocab_size, vocab_size);
      const std::int64_t place = position + static_cast<std::int64_t>(i);
      check(index, row, place);
      const DraftToken* draft = i < drafts.size() ? &drafts[i] : nullptr;
      const SequenceSampler& sampler = ahead ? *ahead : *own;
      const std::int64_t id =
          results[index].tokens.emplace_back(sampler.sample(row, place, draft)).id;
      if (draft == nullptr || id != draft->id || own->is_stop_token(id)) return;
      if (!ahead) ahead = *own;
      ahead->append(id);
    }
  };
  std::int64_t num_logits = 1;
  for (const SamplingRun& run : runs) num_logits += std::ssize(run.logits);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain * std::ssize(runs) / num_logits);
  at::parallel_for(0, std::ssize(runs), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<std::size_t>(i);
      try {
        sample(index);
      } catch (const UserError&) {
        results[index].error = std::current_exception();
      }
    }
  });
  return results;
}

}  // namespace megatron
