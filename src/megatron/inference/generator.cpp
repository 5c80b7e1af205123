#include "megatron/inference/generator.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/sampling/beam_search.h"
#include "megatron/inference/sampling/stop_strings.h"

namespace megatron {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::max_positions:
      return "max_positions";
  }
  return "";
}

namespace {

/// A text that is being generated.
struct Sequence {
  std::size_t place;                ///< of its prompt
  std::vector<std::int64_t> input;  ///< tokens for the next pass; empty: the text has ended
  SequenceSampler sampler;
  std::unique_ptr<TextStream> text;  ///< null without stop strings
  SequenceCache cache = {};
};

/// Runs a pass over tokens, each with the cache of those before, and returns the logits of the
/// tokens that come next.
at::Tensor next_logits(const ModelRunner& model,
                       const std::vector<std::span<const std::int64_t>>& ids,
                       const Caches& caches) {
  const Microbatch tokens = microbatch_of(ids);
  return model.infer({.microbatch = tokens, .wants = Wants::last_logits, .caches = &caches})
      .to(c10::kCPU, c10::kFloat)
      .contiguous();
}

std::span<const float> row_of(const at::Tensor& logits, std::size_t row) {
  const auto size = static_cast<std::size_t>(logits.size(1));
  return {logits.const_data_ptr<float>() + row * size, size};
}

/// Adds a token to a text, or ends it.
void append(Sequence& sequence, const SampledToken& token, const SamplingParams& params,
            Generation& result) {
  result.score += token.logprob;
  if (std::ranges::count(params.stop_token_ids, token.id) > 0) {
    result.finish_reason = FinishReason::stop;
    sequence.input.clear();
    return;
  }
  if (sequence.text) sequence.text->add(token.id, sequence.sampler.may_stop());
  sequence.sampler.append(token.id);
  sequence.input = {token.id};
  if (sequence.text && sequence.text->has_stopped()) sequence.input.clear();
  result.ids.push_back(token.id);
  if (params.needs_logprobs()) result.tokens.push_back(token);
}

/// Completes the result of a text that has ended.
void end(const Sequence& sequence, Generation& result) {
  const bool has_stop_token = result.finish_reason == FinishReason::stop;
  const std::int64_t num_drawn = std::ssize(result.ids) + (has_stop_token ? 1 : 0);
  result.score /= static_cast<double>(std::max<std::int64_t>(1, num_drawn));
  if (!sequence.text) return;
  sequence.text->finish();
  if (!sequence.text->has_stopped()) return;
  result.finish_reason = FinishReason::stop;
  result.num_cut_bytes = sequence.text->num_cut_bytes();
}

}  // namespace

Generator::Generator(const ModelRunner& model, SamplingParams params, const Tokenizer* tokenizer)
    : model_(model), params_(std::move(params)), tokenizer_(tokenizer) {
  check_sampling_options(params_, model_.config().vocab_size);
  MEGATRON_CHECK(tokenizer != nullptr || params_.stop.empty(), "stop strings need a tokenizer");
}

void Generator::check_row(std::span<const float> logits, const Prompt& prompt,
                          std::int64_t position) const {
  check_logits(
      model_.model(), logits,
      "prompt " + std::to_string(prompt.index + 1) + ", position " + std::to_string(position));
}

std::vector<Generation> Generator::generate(std::span<const Prompt> prompts,
                                            const OnToken& on_token) const {
  std::vector<Sequence> running;
  for (const Prompt& prompt : prompts) {
    check_token_ids(prompt.ids, model_.config(), "prompt " + std::to_string(prompt.index + 1));
    running.push_back(
        {running.size(),
         {prompt.ids.begin(), prompt.ids.end()},
         SequenceSampler(params_, prompt.ids, {.prompt = prompt.index, .sample = prompt.sample}),
         params_.stop.empty()
             ? nullptr
             : std::make_unique<TextStream>(*tokenizer_, prompt.ids, params_.stop)});
  }
  const c10::InferenceMode no_gradients;
  const std::int64_t limit = max_sequence_length(model_.config());
  std::vector<Generation> results(prompts.size());
  const auto has_ended = [&](const Sequence& sequence) {
    Generation& result = results[sequence.place];
    const bool is_full = sequence.cache.length + std::ssize(sequence.input) > limit;
    if (!sequence.input.empty() && std::ssize(result.ids) < params_.max_new_tokens) {
      if (!is_full) return false;
      result.finish_reason = FinishReason::max_positions;
    }
    end(sequence, result);
    return true;
  };
  while (true) {
    std::erase_if(running, has_ended);
    if (running.empty()) return results;
    std::vector<std::span<const std::int64_t>> ids;
    Caches caches;
    for (Sequence& sequence : running) {
      ids.emplace_back(sequence.input);
      caches.push_back(&sequence.cache);
    }
    const at::Tensor logits = next_logits(model_, ids, caches);
    std::vector<SamplingRow> rows;
    for (const Sequence& sequence : running) {
      rows.push_back({&sequence.sampler, row_of(logits, rows.size()), sequence.cache.length});
      check_row(rows.back().logits, prompts[sequence.place], sequence.cache.length);
    }
    const std::vector<SampledToken> tokens = sample_rows(rows);
    for (std::size_t i = 0; i < running.size(); ++i) {
      Generation& result = results[running[i].place];
      append(running[i], tokens[i], params_, result);
      if (on_token && result.finish_reason != FinishReason::stop)
        on_token(running[i].place, tokens[i].id);
    }
  }
}

Generation Generator::generate(std::span<const std::int64_t> prompt, std::uint64_t prompt_index,
                               const std::function<void(std::int64_t)>& on_token) const {
  const Prompt alone{prompt, prompt_index};
  return generate({&alone, 1},
                  [&](std::size_t, std::int64_t id) {
                    if (on_token) on_token(id);
                  })
      .front();
}

std::vector<std::vector<Generation>> Generator::generate_all(std::span<const Prompt> prompts,
                                                             const OnToken& on_token) const {
  std::vector<std::vector<Generation>> results;
  if (params_.num_beams > 1) {
    for (const Prompt& prompt : prompts) results.push_back(search_beams(prompt));
    return results;
  }
  std::vector<Prompt> samples;
  for (const Prompt& prompt : prompts)
    for (std::int64_t i = 0; i < params_.num_samples(); ++i)
      samples.push_back({prompt.ids, prompt.index, static_cast<std::uint64_t>(i)});
  // The tokens of a pass share the capacity of experts, so then each text has passes of its own.
  const MoeConfig& moe = model_.config().moe;
  const bool is_alone = moe.num_experts > 0 && moe.expert_capacity_factor;
  const std::size_t together = is_alone ? 1 : samples.size();
  std::vector<Generation> texts;
  for (std::size_t first = 0; first < samples.size(); first += together) {
    std::ranges::move(generate(std::span(samples).subspan(first, together),
                               [&](std::size_t i, std::int64_t id) {
                                 if (on_token) on_token(first + i, id);
                               }),
                      std::back_inserter(texts));
  }
  for (auto next = texts.begin(); next != texts.end();) {
    const auto end = next + params_.num_samples();
    std::vector<Generation>& own =
        results.emplace_back(std::move_iterator(next), std::move_iterator(end));
    if (params_.num_samples() > params_.n)
      std::ranges::stable_sort(own, std::ranges::greater(), &Generation::score);
    own.resize(static_cast<std::size_t>(params_.n));
    next = end;
  }
  return results;
}

std::vector<Generation> Generator::search_beams(const Prompt& prompt) const {
  check_token_ids(prompt.ids, model_.config(), "prompt " + std::to_string(prompt.index + 1));
  const std::int64_t room = max_sequence_length(model_.config()) - std::ssize(prompt.ids) + 1;
  const auto num_texts = static_cast<std::size_t>(params_.n);
  if (params_.max_new_tokens == 0) return std::vector<Generation>(num_texts);
  const c10::InferenceMode no_gradients;
  BeamSearch search(params_, std::min(params_.max_new_tokens, room));
  std::vector<SequenceCache> caches(1);
  while (!search.running().empty()) {
    std::vector<std::span<const std::int64_t>> ids;
    for (const Beam& beam : search.running())
      ids.push_back(beam.ids.empty() ? prompt.ids : std::span(beam.ids).last(1));
    Caches used;
    for (SequenceCache& cache : caches) used.push_back(&cache);
    const at::Tensor logits = next_logits(model_, ids, used);
    std::vector<std::vector<float>> logprobs;
    for (const Beam& beam : search.running()) {
      const std::span<const float> row = row_of(logits, logprobs.size());
      check_row(row, prompt, std::ssize(prompt.ids) + std::ssize(beam.ids));
      const LogSoftmax log_softmax(row);
      std::vector<float>& own = logprobs.emplace_back();
      for (const float logit : row) own.push_back(static_cast<float>(log_softmax(logit)));
      SequenceSampler history(params_, prompt.ids, {});
      for (const std::int64_t id : beam.ids) history.append(id);
      history.apply_penalties(own);
    }
    search.step(std::vector<std::span<const float>>(logprobs.begin(), logprobs.end()));
    std::vector<SequenceCache> next;
    for (const Beam& beam : search.running()) next.push_back(caches[beam.parent].fork());
    caches = std::move(next);
  }
  std::vector<Generation> results;
  for (const FinishedBeam& beam : search.finished()) {
    if (results.size() == num_texts) break;
    const FinishReason limit =
        room < params_.max_new_tokens ? FinishReason::max_positions : FinishReason::length;
    results.push_back({.ids = beam.ids,
                       .finish_reason = beam.has_stopped ? FinishReason::stop : limit,
                       .score = beam.score});
  }
  return results;
}

}  // namespace megatron
