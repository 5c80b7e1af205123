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
  const float own = row.logits[static_cast<std::size_t>(row.id)];
  token.rank = std::ranges::count_if(row.logits, [=](float logit) { return logit >= own; });
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
                                 SamplingSite site, std::shared_ptr<Grammar> grammar)
    : params_(&params),
      site_(site),
      grammar_(std::move(grammar)),
      is_constrained_(grammar_ != nullptr && params.constraint_starts_after.empty()),
      thinks_(params.thinking_budget >= 0 && !params.end_thinking_ids.empty()) {
  MEGATRON_CHECK((grammar_ != nullptr) == (params.constraint.kind != OutputConstraint::Kind::none),
                 "a constraint has a grammar");
  if (grammar_) grammar_state_ = grammar_->begin();
  if (params.repetition_penalty != 1)
    for (const std::int64_t id : prompt) counts_.emplace(id, 0);
  num_last_ids_ = std::max(params.end_thinking_ids.size(), params.constraint_starts_after.size());
  for (const auto& word : params.bad_word_ids)
    num_last_ids_ = std::max(num_last_ids_, word.size() - 1);
}

void SequenceSampler::append(std::int64_t id) {
  ++num_new_tokens_;
  if (reads_counts()) ++counts_[id];
  try {
    if (is_constrained_ && !error_) grammar_state_ = grammar_->advance(grammar_state_, id);
  } catch (const UserError&) {
    error_ = std::current_exception();
  }
  if (!thinks_ && (grammar_ == nullptr || is_constrained_) && params_->bad_word_ids.empty()) return;
  last_ids_.push_back(id);
  if (last_ids_.size() > num_last_ids_) last_ids_.erase(last_ids_.begin());
  thinks_ = thinks_ && !has_said(params_->end_thinking_ids);
  is_constrained_ =
      grammar_ != nullptr && (is_constrained_ || has_said(params_->constraint_starts_after));
}

bool SequenceSampler::has_said(std::span<const std::int64_t> ids) const {
  return last_ids_.size() >= ids.size() &&
         std::ranges::equal(std::span(last_ids_).last(ids.size()), ids);
}

std::optional<std::int64_t> SequenceSampler::forced_token() const {
  if (!thinks_ || is_constrained_ || num_new_tokens_ < params_->thinking_budget)
    return std::nullopt;
  const std::span<const std::int64_t> ids = params_->end_thinking_ids;
  std::size_t said = ids.size() - 1;
  while (!has_said(ids.first(said))) --said;
  return ids[said];
}

std::shared_ptr<const TokenMask> SequenceSampler::mask() const {
  if (!is_constrained_) return nullptr;
  if (error_) std::rethrow_exception(error_);
  MEGATRON_CHECK(grammar_state_ != TextMatcher::kNone, "the text does not fit its constraint");
  return grammar_->mask(grammar_state_);
}

bool SequenceSampler::has_ended() const try {
  if (!is_constrained_ || !params_->stop_token_ids.empty()) return false;
  return grammar_state_ == TextMatcher::kNone || !mask()->has_tokens;
} catch (const UserError&) {
  return false;  // sample() throws it
}

bool SequenceSampler::is_stop_impossible(const TokenMask* mask) const {
  if (mask != nullptr) return !mask->is_complete || (!may_stop() && mask->has_tokens);
  return !may_stop() || grammar_ != nullptr;  // before the constrained text
}

bool SequenceSampler::reads_counts() const {
  return params_->repetition_penalty != 1 || params_->presence_penalty != 0 ||
         params_->frequency_penalty != 0;
}

bool SequenceSampler::has_penalties() const {
  return reads_counts() || !params_->logit_bias.empty() || !may_stop() || grammar_ != nullptr ||
         forced_token() || !params_->allowed_token_ids.empty() || !params_->bad_word_ids.empty();
}

void SequenceSampler::apply_penalties(std::span<float> logits) const {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto is_token = [&](std::int64_t id) { return id >= 0 && id < std::ssize(logits); };
  const auto logit = [&](std::int64_t id) -> float& {
    return logits[static_cast<std::size_t>(id)];
  };
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  const std::shared_ptr<const TokenMask> mask = this->mask();
  if (is_stop_impossible(mask.get())) {
    for (const std::int64_t id : params_->stop_token_ids)
      if (is_token(id)) logit(id) = kImpossible;
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
  for (const std::span<const std::int64_t> word : params_->bad_word_ids)
    if (is_token(word.back()) && has_said(word.first(word.size() - 1)))
      logit(word.back()) = kImpossible;
  if (const std::optional<std::int64_t> forced = forced_token()) {
    std::ranges::fill(logits, kImpossible);
    logit(*forced) = 0;
    return;
  }
  if (mask == nullptr && params_->allowed_token_ids.empty()) return;
  // What stays possible: a stop token is one that the constraint need not allow.
  std::vector<std::pair<std::int64_t, float>> kept;
  const std::vector<std::int64_t>& others =
      mask != nullptr ? params_->stop_token_ids : params_->allowed_token_ids;
  for (const std::int64_t id : others)
    if (is_token(id)) kept.emplace_back(id, logit(id));
  if (mask != nullptr)
    mask->apply(logits);
  else
    std::ranges::fill(logits, kImpossible);
  for (const auto& [id, value] : kept) logit(id) = value;
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
    throw UserError(
        grammar_ != nullptr || !params_->allowed_token_ids.empty() || !params_->bad_words.empty()
            ? UserError::Parts{"the constraint of the output",
                               "the model gives no probability to a token that it allows",
                               "allow other texts"}
            : UserError::Parts{"--min-new-tokens",
                               "every token that the model allows ends the text",
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
                                                 std::int64_t position, bool samples) const try {
  const bool is_behind_end =
      is_constrained_ && (grammar_state_ == TextMatcher::kNone || has_ended());
  if (is_behind_end) return std::nullopt;
  const std::vector<float> changed = penalized(logits);
  const std::span<const float> used = changed.empty() ? logits : changed;
  if (!are_sound_logits(used)) return std::nullopt;
  const SamplingSite site = site_at(position);
  if (!samples || params_->temperature == 0) return DraftToken{sample_token(used, *params_, site)};
  std::vector<TokenProbability> all = sampling_distribution(used, *params_);
  const auto seed = static_cast<std::uint64_t>(params_->seed);
  const std::int64_t id = draw_token(all, sampling_uniform(seed, site, "draft"));
  return DraftToken{id, std::move(all)};
} catch (const UserError&) {
  return std::nullopt;  // sample() throws it
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
      if (ahead->has_ended()) return;
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
