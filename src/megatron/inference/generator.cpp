#include "megatron/inference/generator.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "megatron/base/division.h"
#include "megatron/base/error.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/sampling/beam_search.h"

namespace megatron {

namespace {

/// Longer texts than anybody has memory for.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 26;

/// Returns the limits with no more blocks than the longest texts need that run together.
SchedulerOptions narrowed(SchedulerOptions limits, std::span<const Prompt> prompts,
                          std::int64_t max_new_tokens) {
  std::vector<std::int64_t> blocks;
  for (const Prompt& prompt : prompts)
    // The scheduler starts a sequence only if a block is left for each that runs.
    blocks.push_back(1 + ceil_div(std::ssize(prompt.ids) + max_new_tokens, kBlockPositions));
  std::ranges::sort(blocks, std::greater());
  blocks.resize(std::min(blocks.size(), static_cast<std::size_t>(limits.max_running)));
  limits.num_blocks = std::clamp<std::int64_t>(
      std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), 1, limits.num_blocks);
  return limits;
}

}  // namespace

Generator::Generator(const ModelRunner& model, SamplingParams params,
                     const EngineOptions& options)
    : model_(model), params_(std::move(params)), options_(options) {
  check_sampling(params_, model_.config());
  MEGATRON_CHECK(options.tokenizer != nullptr || params_.stop.empty(), "stop strings need a tokenizer");
}

std::vector<Generation> Generator::generate(std::span<const Prompt> prompts,
                                            const OnToken& on_token) const {
  SamplingParams params = params_;
  params.max_new_tokens = std::min(params.max_new_tokens, kMostTokens);
  EngineOptions options = options_;
  options.scheduler = narrowed(options.scheduler, prompts, params.max_new_tokens);
  Engine engine(model_, options);
  std::map<SequenceId, std::size_t> places;
  for (const Prompt& prompt : prompts) {
    const SequenceId id =
        engine.add_request({.prompt = {prompt.ids.begin(), prompt.ids.end()},
                            .params = params,
                            .site = {.prompt = prompt.index, .sample = prompt.sample}});
    places.emplace(id, places.size());
  }
  std::vector<Generation> results(prompts.size());
  while (!engine.is_idle()) {
    for (Update& update : engine.step()) {
      const std::size_t place = places.at(update.request);
      if (update.token && on_token) on_token(place, *update.token);
      if (update.finished) results[place] = std::move(*update.finished);
    }
  }
  return results;
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
  const std::size_t together = shares_expert_capacity(model_.config()) ? 1 : samples.size();
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
      check_next_logits(model_, row, prompt.index, std::ssize(prompt.ids) + std::ssize(beam.ids));
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
