// What the results of a pass change in an engine: texts grow, fork and end, beams go on, and
// updates tell of it.
#include <algorithm>
#include <iterator>
#include <utility>

#include "megatron/inference/engine.h"
#include "megatron/inference/running_text.h"

namespace megatron {

void Engine::take(SequenceId sequence, RunResult result) {
  RunningText& text = *running_.at(sequence);
  SequenceGroup& group = *text.group;
  if (result.error) {
    const SequenceId request = group.id;
    cancel(request);
    news_.push_back({.request = request, .is_last = true, .error = result.error});
    return;
  }
  std::ranges::move(result.scored, std::back_inserter(group.prompt_tokens));
  if (result.hidden.defined()) group.pooler.add(result.hidden);
  if (result.routed_experts.defined()) {
    text.add_routed_experts(result.first, result.routed_experts);
    for (const auto& sibling : text.siblings)
      sibling->add_routed_experts(result.first, result.routed_experts);
  }
  if (group.max_new_tokens == 0) {
    if (scheduler_.contains(sequence)) return;
    const TextRequest& request = group.request;
    if (request.pooling != Pooling::none)
      text.result.embedding = group.pooler.embedding(request.normalizes);
    finish(sequence, FinishReason::length);
    return;
  }
  if (!result.logprobs.empty()) {
    text.logprobs = std::move(result.logprobs);
    if (std::ranges::all_of(
            group.beams, [this](SequenceId beam) { return !running_.at(beam)->logprobs.empty(); }))
      continue_beams(group);
    return;
  }
  const bool has_ended = std::ranges::any_of(
      result.drawn, [&](const SampledToken& token) { return append(text, token); });
  for (std::size_t i = 0; i < result.firsts.size(); ++i) {
    std::unique_ptr<RunningText> sibling = std::move(text.siblings[i]);
    if (append(*sibling, result.firsts[i])) continue;
    sibling->cache = text.cache.fork();
    const SequenceId fork =
        scheduler_.fork(sequence, std::ssize(group.request.prompt), result.firsts[i].id);
    add_text(fork, std::move(sibling));
    allow_drafts(fork);
  }
  if (!result.firsts.empty()) text.siblings.clear();
  if (has_ended)
    drop(sequence);
  else if (!result.firsts.empty())
    allow_drafts(sequence);
}

void Engine::continue_beams(SequenceGroup& group) {
  std::vector<std::span<const float>> logprobs;
  for (const SequenceId beam : group.beams) logprobs.emplace_back(running_.at(beam)->logprobs);
  group.search->step(logprobs);
  const std::vector<SequenceId> parents = std::exchange(group.beams, {});
  for (const Beam& beam : group.search->running()) {
    const SequenceId parent = parents[beam.parent];
    const RunningText& from = *running_.at(parent);
    const SequenceId fork =
        scheduler_.fork(parent, std::ssize(scheduler_.tokens(parent)), beam.ids.back());
    auto next = std::make_unique<RunningText>(from.group, 0, options_.tokenizer, memory_.cache);
    next->sampler = from.sampler;
    next->sampler.append(beam.ids.back());
    next->cache = from.cache.fork();
    add_text(fork, std::move(next));
    group.beams.push_back(fork);
  }
  if (group.beams.empty()) finish_beams(group, group.limit());
  for (const SequenceId parent : parents) drop(parent);
}

void Engine::tell(RunningText& text, std::optional<std::int64_t> token,
                  std::optional<FinishReason> reason) {
  Update& update = news_.emplace_back();
  update.request = text.group->id;
  update.text = text.number;
  update.token = token;
  if (std::ssize(text.result.ids) == (token ? 1 : 0))
    update.prompt_tokens = text.group->prompt_tokens;
  if (!reason) return;
  update.finished = text.take_result(*reason);
  update.is_last = --text.group->num_open == 0;
}

bool Engine::append(RunningText& text, const SampledToken& token) {
  const std::size_t before = text.result.ids.size();
  const std::optional<FinishReason> reason = text.append(token);
  const bool is_kept = text.result.ids.size() > before;  // not a stop token
  tell(text, is_kept ? std::optional(token.id) : std::nullopt, reason);
  if (is_kept && text.group->request.params.needs_logprobs()) news_.back().scored = token;
  return reason.has_value();
}

void Engine::finish_beams(SequenceGroup& group, FinishReason reason) {
  const std::vector<FinishedBeam>& beams = group.search->finished();
  const std::int64_t count = std::min(std::ssize(beams), group.request.params.n);
  for (std::int64_t i = 0; i < count; ++i) {
    const FinishedBeam& beam = beams[static_cast<std::size_t>(i)];
    Generation result{.ids = beam.ids,
                      .finish_reason = beam.has_stopped ? FinishReason::stop : reason,
                      .score = beam.score};
    if (i == 0) result.prompt_tokens = group.prompt_tokens;
    group.tell_start(result);
    news_.push_back({.request = group.id, .text = i, .finished = std::move(result)});
  }
  if (count == 0) news_.push_back({.request = group.id});
  news_.back().is_last = true;
}

void Engine::finish(SequenceId sequence, FinishReason reason) {
  RunningText& text = *running_.at(sequence);
  const std::shared_ptr<SequenceGroup> group = text.group;
  if (group->search) {
    group->search->stop();
    finish_beams(*group, reason);
    for (const SequenceId beam : group->beams) drop(beam);
    return;
  }
  tell(text, {}, reason);
  for (const auto& sibling : text.siblings) tell(*sibling, {}, reason);
  drop(sequence);
}

void Engine::add_text(SequenceId sequence, std::unique_ptr<RunningText> text) {
  places_.emplace(text->group->id, sequence);
  running_.emplace(sequence, std::move(text));
}

void Engine::drop(SequenceId sequence) {
  scheduler_.drop(sequence);
  drafter_->forget(sequence);
  places_.erase({running_.at(sequence)->group->id, sequence});
  running_.erase(sequence);
}

}  // namespace megatron
