#include "megatron/inference/engine.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/sampling/stop_strings.h"

namespace megatron {
namespace {

/// One of so many steps drafts nothing, to tell whether drafts pay.
constexpr std::int64_t kStepsPerMeasurement = 16;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

SchedulerOptions scheduler_options(const ModelRunner& model, const EngineOptions& options) {
  SchedulerOptions scheduler = options.scheduler;
  scheduler.keeps_states = model.model().keeps_states();
  // The caches of drafters are not swapped.
  if (options.speculation.config.num_speculative_tokens > 0) scheduler.num_swap_blocks = 0;
  return scheduler;
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::max_positions:
      return "max_positions";
    case FinishReason::deadline:
      return "deadline";
  }
  return "";
}

at::Tensor next_logits(const ModelRunner& model,
                       const std::vector<std::span<const std::int64_t>>& inputs,
                       const Caches& caches, std::vector<std::int64_t> num_logits,
                       at::Tensor* rows) {
  const Microbatch tokens = microbatch_of(inputs);
  return model
      .infer({.microbatch = tokens,
              .wants = Wants::last_logits,
              .caches = &caches,
              .num_logits = std::move(num_logits),
              .rows = rows})
      .to(c10::kCPU, c10::kFloat)
      .contiguous();
}

std::span<const float> row_of(const at::Tensor& logits, std::size_t sequence) {
  const auto columns = static_cast<std::size_t>(logits.size(1));
  return {logits.const_data_ptr<float>() + sequence * columns, columns};
}

void check_next_logits(const ModelRunner& model, std::span<const float> logits,
                       std::uint64_t prompt_index, std::int64_t position) {
  check_logits(
      model.model(), logits,
      "prompt " + std::to_string(prompt_index + 1) + ", position " + std::to_string(position));
}

void copy_blocks(std::span<const BlockCopy> copies, CacheMemory& memory, CacheMemory& swap) {
  for (const BlockCopy& copy : copies) {
    CacheMemory& from = copy.kind == CopyKind::swap_in ? swap : memory;
    CacheMemory& to = copy.kind == CopyKind::swap_out ? swap : memory;
    from.copy_block(copy.from, to, copy.to);
  }
}

/// A text that is being generated.
struct Engine::Running {
  Running(TextRequest from, std::int64_t max_tokens, const EngineOptions& options,
          const std::shared_ptr<CacheMemory>& memory)
      : request(std::move(from)),
        max_new_tokens(max_tokens),
        sampler(request.params, request.prompt, request.site),
        cache(memory) {
    if (!request.params.stop.empty())
      text =
          std::make_unique<GeneratedText>(*options.tokenizer, request.prompt, request.params.stop);
  }
  TextRequest request;
  std::int64_t max_new_tokens;  ///< at most as many as the model has positions for
  SequenceSampler sampler;
  std::unique_ptr<GeneratedText> text;  ///< null without stop strings
  SequenceCache cache;
  Generation result = {};
};

Engine::Engine(const ModelRunner& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      scheduler_(scheduler_options(model, options)),
      memory_(std::make_shared<CacheMemory>(
          CacheMemoryOptions{.most = options.scheduler.num_blocks, .type = options.kv_cache_type})),
      drafter_(make_drafter(options.speculation, model)) {
  MEGATRON_CHECK(!drafter_ || !model.model().keeps_states(),
                 "states of layers do not forget rejected drafts");
  MEGATRON_CHECK(options.scheduler.block_size == kBlockPositions, "a block of the cache has ",
                 kBlockPositions, " positions");
}

Engine::~Engine() = default;

void Engine::recompute_all() {
  scheduler_.recompute_all();
  snapshots_.clear();
  for (const auto& [id, own] : running_) {
    own->cache = SequenceCache(memory_);
    forget(id);
  }
}

SequenceId Engine::add_request(TextRequest request) {
  check_sampling(request.params, model_.config());
  MEGATRON_CHECK(options_.tokenizer != nullptr || request.params.stop.empty(),
                 "stop strings need a tokenizer");
  const std::string name = "prompt " + std::to_string(request.site.prompt + 1);
  check_token_ids(request.prompt, model_.config(), name);
  // The last token of a text needs no position.
  const std::int64_t room = max_sequence_length(model_.config()) - std::ssize(request.prompt),
                     wanted = request.params.max_new_tokens,
                     max_new_tokens = room < wanted ? room + 1 : wanted;
  auto running = std::make_unique<Running>(std::move(request), max_new_tokens, options_, memory_);
  const TextRequest& own = running->request;
  const SequenceId id = scheduler_.add({.name = name,
                                        .prompt = own.prompt,
                                        .max_new_tokens = max_new_tokens,
                                        .priority = own.priority,
                                        .deadline_s = own.deadline_s});
  running_.emplace(id, std::move(running));
  if (drafter_) scheduler_.set_max_drafts(id, options_.speculation.config.num_speculative_tokens);
  if (max_new_tokens == 0) finish(id, FinishReason::length);
  return id;
}

bool Engine::cancel(SequenceId request) {
  std::erase_if(news_, [&](const Update& update) { return update.request == request; });
  scheduler_.drop(request);
  forget(request);
  return running_.erase(request) > 0;
}

std::vector<Update> Engine::step() {
  StepPlan plan = scheduler_.plan(options_.clock ? options_.clock() : 0);
  for (const SequenceId request : plan.expired) finish(request, FinishReason::deadline);
  for (const SequenceId request : plan.preempted) forget(request);
  if (plan.runs.empty()) {
    MEGATRON_CHECK(plan.copies.empty(), "blocks are copied for no pass");
    scheduler_.advance(plan, {});
    return std::exchange(news_, {});
  }
  std::vector<std::vector<SampledToken>> drawn;
  const double begin_s = steady_seconds();
  double drafted_s = begin_s;
  try {
    const Drafts drafts = propose(plan);
    drafted_s = steady_seconds();
    drawn = draw(plan, drafts);
  } catch (...) {
    recompute_all();
    throw;
  }
  std::vector<std::vector<std::int64_t>> ids(drawn.size());
  std::vector<std::int64_t> num_drawn;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    for (const SampledToken& token : drawn[i]) ids[i].push_back(token.id);
    num_drawn.push_back(std::ssize(ids[i]));
  }
  if (drafter_ && options_.speculation.stats != nullptr)
    options_.speculation.stats->add(plan.runs, num_drawn, drafted_s - begin_s,
                                    steady_seconds() - drafted_s);
  scheduler_.advance(plan, ids);
  keep_states();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    for (const SampledToken& token : drawn[i]) {
      append(plan.runs[i].sequence, token);
      if (!running_.contains(plan.runs[i].sequence)) break;  // it ends before the last draft
    }
  }
  return std::exchange(news_, {});
}

void Engine::place(SequenceCache& cache, const ScheduledRun& run) {
  cache.blocks = scheduler_.blocks(run.sequence);
  const bool goes_on = std::exchange(cache.length, run.first) == run.first;
  if (goes_on || !model_.model().keeps_states()) return;
  const auto last = static_cast<std::size_t>(run.first / kBlockPositions) - 1;
  const SequenceCache none(memory_);
  cache.copy_states(run.first == 0 ? none : snapshots_.at(cache.blocks[last]));
}

void Engine::keep_states() {
  for (const StateSnapshot& taken : scheduler_.snapshots())
    snapshots_.insert_or_assign(taken.block, SequenceCache(memory_))
        .first->second.copy_states(running_.at(taken.sequence)->cache);
  std::erase_if(snapshots_, [this](const auto& snapshot) {
    return !scheduler_.pool().has_snapshot(snapshot.first);
  });
}

void Engine::forget(SequenceId request) {
  if (drafter_) drafter_->forget(request);
}

Engine::Drafts Engine::propose(StepPlan& plan) {
  if (!drafter_) return Drafts(plan.runs.size());
  const bool measures = ++num_draft_steps_ % kStepsPerMeasurement == 0;
  std::vector<DraftingRun> runs;
  for (ScheduledRun& run : plan.runs) {
    if (measures) run.count -= std::exchange(run.num_drafts, 0);
    runs.push_back({run, scheduler_.tokens(run.sequence), scheduler_.blocks(run.sequence),
                    running_.at(run.sequence)->sampler});
  }
  Drafts drafts = drafter_->propose(runs, plan.copies);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ScheduledRun& run = plan.runs[i];
    run.count -= run.num_drafts - std::ssize(drafts[i]);
    run.num_drafts = std::ssize(drafts[i]);
  }
  return drafts;
}

at::Tensor Engine::logits_of(const StepPlan& plan, const Drafts& drafts) {
  const c10::InferenceMode no_gradients;
  copy_blocks(plan.copies, *memory_, swap_memory_);
  std::vector<std::vector<std::int64_t>> tokens;
  Caches caches;
  std::vector<std::int64_t> num_logits;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const auto known = std::span(scheduler_.tokens(run.sequence))
                           .subspan(static_cast<std::size_t>(run.first),
                                    static_cast<std::size_t>(run.count - run.num_drafts));
    auto& own = tokens.emplace_back(known.begin(), known.end());
    for (const DraftToken& draft : drafts[i]) own.push_back(draft.id);
    caches.push_back(&running_.at(run.sequence)->cache);
    place(*caches.back(), run);
    num_logits.push_back(run.samples ? 1 + run.num_drafts : 0);
  }
  const bool observes = drafter_ && drafter_->observes();
  at::Tensor rows;
  const at::Tensor logits = next_logits(model_, {tokens.begin(), tokens.end()}, caches,
                                        std::move(num_logits), observes ? &rows : nullptr);
  for (const SequenceCache* cache : caches)
    MEGATRON_CHECK(model_.model().keeps_states() || !cache->has_states(),
                   "a layer keeps a cache of its own, but Model::keeps_states() is false");
  if (observes) drafter_->observe(plan.runs, rows);
  return logits;
}

std::vector<std::vector<SampledToken>> Engine::draw(const StepPlan& plan, const Drafts& drafts) {
  const at::Tensor logits = logits_of(plan, drafts);
  const auto columns = static_cast<std::size_t>(logits.size(1));
  std::vector<SamplingRun> runs;
  std::vector<const Running*> texts;
  std::size_t row = 0;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    if (!run.samples) continue;
    texts.push_back(running_.at(run.sequence).get());
    const std::size_t num_rows = 1 + drafts[i].size();
    runs.push_back({&texts.back()->sampler,
                    {row_of(logits, row).data(), num_rows * columns},
                    run.first + run.count - run.num_drafts,
                    drafts[i]});
    row += num_rows;
  }
  std::vector<std::vector<SampledToken>> tokens =
      sample_runs(runs, [&](std::size_t run, std::span<const float> own, std::int64_t position) {
        check_next_logits(model_, own, texts[run]->request.site.prompt, position);
      });
  auto next = tokens.begin();
  std::vector<std::vector<SampledToken>> drawn;
  for (const ScheduledRun& run : plan.runs)
    drawn.push_back(run.samples ? std::move(*next++) : std::vector<SampledToken>());
  return drawn;
}

void Engine::append(SequenceId request, const SampledToken& token) {
  Running& own = *running_.at(request);
  const SamplingParams& params = own.request.params;
  own.result.score += token.logprob;
  if (own.sampler.is_stop_token(token.id)) return finish(request, FinishReason::stop);
  if (own.text) own.text->add(token.id, own.sampler.may_stop());
  own.sampler.append(token.id);
  own.result.ids.push_back(token.id);
  if (params.needs_logprobs()) own.result.tokens.push_back(token);
  news_.push_back({.request = request, .token = token.id});
  const std::int64_t count = own.sampler.num_new_tokens();
  if (count == own.max_new_tokens)
    finish(request,
           count == params.max_new_tokens ? FinishReason::length : FinishReason::max_positions);
  else if (own.text && own.text->has_stopped())
    finish(request, FinishReason::stop);
}

void Engine::finish(SequenceId request, FinishReason reason) {
  Running& own = *running_.at(request);
  Generation& result = own.result;
  result.finish_reason = reason;
  const bool has_stop_token =
      reason == FinishReason::stop && !(own.text && own.text->has_stopped());
  result.score /= static_cast<double>(
      std::max<std::int64_t>(1, std::ssize(result.ids) + (has_stop_token ? 1 : 0)));
  if (own.text) {
    own.text->finish();
    if (own.text->has_stopped()) {
      result.finish_reason = FinishReason::stop;
      result.num_cut_bytes = own.text->num_cut_bytes();
    }
  }
  if (news_.empty() || news_.back().request != request) news_.push_back({.request = request});
  news_.back().finished = std::move(result);
  scheduler_.drop(request);
  forget(request);
  running_.erase(request);
}

}  // namespace megatron
