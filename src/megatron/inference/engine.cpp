#include "megatron/inference/engine.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/sampling/beam_search.h"
#include "megatron/inference/sampling/stop_strings.h"

namespace megatron {
namespace {

/// Maximum number of logits of prompts in memory: 256 MiB in float32.
constexpr std::int64_t kMaxPromptLogits = std::int64_t{1} << 26;
/// One of so many steps drafts nothing, to tell whether drafts pay.
constexpr std::int64_t kStepsPerMeasurement = 16;

SchedulerOptions scheduler_options(const ModelRunner& model, const EngineOptions& options) {
  MEGATRON_CHECK(options.scheduler.block_size == kBlockPositions, "a block of the cache has ",
                 kBlockPositions, " positions");
  SchedulerOptions scheduler = options.scheduler;
  scheduler.keeps_states = model.model().keeps_states();
  if (shares_expert_capacity(model.config())) {  // then each text has passes of its own
    scheduler.max_running = 1;
    scheduler.prefix_cache = false;
  }
  scheduler.max_step_outputs =
      std::min(scheduler.max_step_outputs,
               std::max<std::int64_t>(1, kMaxPromptLogits / model.config().vocab_size));
  return scheduler;
}

/// Throws UserError if the log-probability of a token of a prompt is not finite.
void check_score(Model& model, std::span<const float> logits, double logprob,
                 const std::string& source, std::int64_t number) {
  if (std::isfinite(logprob)) return;
  const std::string token = "ids[" + std::to_string(number) + "]";
  check_logits(model, logits, source + ", " + token);
  throw_non_finite_logits(model, source + ": the log-probability of " + token,
                          std::to_string(logprob));
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"stop", "length", "max_positions", "deadline"};
  return kNames[static_cast<std::size_t>(reason)];
}

std::vector<Generation> best_texts(std::vector<Generation> texts, const SamplingParams& params) {
  if (params.num_samples() <= params.n) return texts;
  std::vector<SampledToken> prompt_tokens = std::move(texts.front().prompt_tokens);
  const auto score = [](const Generation& text) {
    const bool has_no_tokens = text.ids.empty() && text.finish_reason != FinishReason::stop;
    return has_no_tokens ? -std::numeric_limits<double>::infinity() : text.score;
  };
  std::ranges::stable_sort(texts, std::ranges::greater(), score);
  texts.resize(static_cast<std::size_t>(params.n));
  texts.front().prompt_tokens = std::move(prompt_tokens);
  return texts;
}

void take_finished(Update& update, std::vector<Generation>& texts) {
  if (!update.finished) return;
  const auto number = static_cast<std::size_t>(update.text);
  texts.resize(std::max(texts.size(), number + 1));
  texts[number] = *std::move(update.finished);
}

at::Tensor next_logits(const ModelRunner& model, Pass pass) {
  pass.wants = Wants::last_logits;
  return model.infer(pass).to(c10::kCPU, c10::kFloat).contiguous();
}

std::span<const float> row_of(const at::Tensor& logits, std::size_t row) {
  const auto columns = static_cast<std::size_t>(logits.size(1));
  return {logits.const_data_ptr<float>() + row * columns, columns};
}

/// A request, and what its texts share.
struct Engine::Group {
  TextRequest request;
  std::int64_t max_new_tokens = 0;  ///< at most as many as the model has positions for
  SequenceId id = 0;
  std::int64_t num_open = 1;  ///< samples that have not ended
  std::vector<SampledToken> prompt_tokens = {};
  std::unique_ptr<BeamSearch> search = nullptr;  ///< null without beams
  std::vector<SequenceId> beams = {};            ///< of search->running()

  /// Returns the first token of the prompt that has no score yet.
  std::int64_t next_scored() const { return request.first_scored + std::ssize(prompt_tokens); }
  /// Returns why a text with max_new_tokens tokens ends.
  FinishReason limit() const {
    return max_new_tokens < request.params.max_new_tokens ? FinishReason::max_positions
                                                          : FinishReason::length;
  }
};

/// A text that is being generated.
struct Engine::Running {
  Running(std::shared_ptr<Group> of, std::int64_t sample, const EngineOptions& options,
          const std::shared_ptr<CacheMemory>& memory)
      : group(std::move(of)),
        number(sample),
        sampler(sampler_of(group->request, sample)),
        cache(memory) {
    const TextRequest& request = group->request;
    if (!request.params.stop.empty())
      text =
          std::make_unique<GeneratedText>(*options.tokenizer, request.prompt, request.params.stop);
  }
  static SequenceSampler sampler_of(const TextRequest& request, std::int64_t sample) {
    SamplingSite site = request.site;
    site.sample += static_cast<std::uint64_t>(sample);
    return {request.params, request.prompt, site};
  }

  /// Adds a token. Returns why the text ends, if it does.
  std::optional<FinishReason> append(const SampledToken& token) {
    const SamplingParams& params = group->request.params;
    result.score += token.logprob;
    if (sampler.is_stop_token(token.id)) return FinishReason::stop;
    if (text) text->add(token.id, sampler.may_stop());
    sampler.append(token.id);
    result.ids.push_back(token.id);
    if (params.needs_logprobs()) result.tokens.push_back(token);
    if (sampler.num_new_tokens() == group->max_new_tokens) return group->limit();
    return text && text->has_stopped() ? std::optional(FinishReason::stop) : std::nullopt;
  }

  /// Returns the log-probabilities of the next token of a beam, after penalties.
  std::vector<float> penalized_logprobs(std::span<const float> logits) const {
    const LogSoftmax log_softmax(logits);
    std::vector<float> all;
    for (const float logit : logits) all.push_back(static_cast<float>(log_softmax(logit)));
    sampler.apply_penalties(all);
    return all;
  }

  /// Returns the result of a text that has ended.
  Generation take_result(FinishReason reason) {
    result.finish_reason = reason;
    const bool has_stop_token = reason == FinishReason::stop && !(text && text->has_stopped());
    result.score /= static_cast<double>(
        std::max<std::int64_t>(1, std::ssize(result.ids) + (has_stop_token ? 1 : 0)));
    if (text) {
      text->finish();
      if (text->has_stopped()) {
        result.finish_reason = FinishReason::stop;
        result.num_cut_bytes = text->num_cut_bytes();
      }
    }
    if (number == 0) result.prompt_tokens = group->prompt_tokens;
    return std::move(result);
  }

  std::shared_ptr<Group> group;
  std::int64_t number;  ///< among the samples of the request
  SequenceSampler sampler;
  std::unique_ptr<GeneratedText> text;  ///< null without stop strings
  SequenceCache cache;
  Generation result = {};
  std::vector<std::unique_ptr<Running>> siblings = {};  ///< other samples, until they fork
  std::vector<float> logprobs = {};                     ///< of a beam that is held
};

Engine::Engine(const ModelRunner& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      scheduler_(scheduler_options(model, options)),
      memory_{std::make_shared<CacheMemory>(CacheMemoryOptions{
          .max_blocks = options.scheduler.num_blocks, .type = options.kv_cache_type})},
      drafter_(make_drafter(options.speculation, model, options.scheduler.num_blocks)) {}

Engine::~Engine() = default;

void Engine::recompute_all() {
  scheduler_.recompute_all();
  snapshots_.clear();
  for (const auto& [id, own] : running_) {
    own->cache = SequenceCache(memory_.cache);
    drafter_->forget(id);
  }
}

SequenceId Engine::add_request(TextRequest request) {
  check_sampling_options(request.params, model_.config().vocab_size);
  if (request.source.empty()) request.source = "prompt " + std::to_string(request.site.prompt + 1);
  if (options_.tokenizer == nullptr && !request.params.stop.empty())
    throw UserError({request.source, "it has stop strings, and the engine has no tokenizer",
                     "give stop tokens"});
  const std::int64_t size = std::ssize(request.prompt);
  const bool scores = request.params.prompt_logprobs && request.first_scored < size,
             only_scores = scores && request.params.max_new_tokens == 0;
  check_token_ids(request.prompt, model_.config(), request.source, only_scores ? size - 1 : size);
  if (request.first_scored < 1)
    throw UserError({request.source,
                     "tokens are to be scored from number " + std::to_string(request.first_scored) +
                         " on, and nothing is before it",
                     "give a number of at least 1"});
  // The last token of a text needs no position.
  const std::int64_t room = max_sequence_length(model_.config()) - size,
                     wanted = request.params.max_new_tokens,
                     max_new_tokens = room < wanted ? room + 1 : wanted;
  auto group = std::make_shared<Group>(
      Group{.request = std::move(request), .max_new_tokens = max_new_tokens});
  const TextRequest& own = group->request;
  std::vector<std::int64_t> tokens = own.prompt;
  if (only_scores) tokens.pop_back();  // nothing follows that has a score
  Request scheduled{.name = own.source,
                    .prompt = std::move(tokens),
                    .max_new_tokens = max_new_tokens,
                    .priority = own.priority,
                    .deadline_s = own.deadline_s};
  if (scores) scheduled.first_output = own.first_scored - 1;
  const SequenceId sequence = scheduler_.add(scheduled);
  group->id = own.id.value_or(sequence);
  auto first = std::make_unique<Running>(group, 0, options_, memory_.cache);
  if (own.params.num_beams > 1 && max_new_tokens > 0) {
    group->search = std::make_unique<BeamSearch>(own.params, max_new_tokens);
    group->beams = {sequence};
  } else {
    group->num_open = own.params.num_samples();
    const bool forks = !shares_expert_capacity(model_.config());
    for (std::int64_t i = 1; i < group->num_open; ++i) {
      auto sample = std::make_unique<Running>(group, i, options_, memory_.cache);
      if (forks)
        first->siblings.push_back(std::move(sample));
      else
        running_.emplace(scheduler_.add(scheduled), std::move(sample));
    }
  }
  if (!group->search && first->siblings.empty()) allow_drafts(sequence);
  running_.emplace(sequence, std::move(first));
  if (max_new_tokens == 0 && !scores) finish(sequence, FinishReason::length);
  return group->id;
}

bool Engine::cancel(SequenceId request) {
  std::erase_if(news_, [&](const Update& update) { return update.request == request; });
  std::vector<SequenceId> sequences;
  for (const auto& [sequence, text] : running_)
    if (text->group->id == request) sequences.push_back(sequence);
  for (const SequenceId sequence : sequences) drop(sequence);
  return !sequences.empty();
}

std::vector<Update> Engine::step() {
  StepPlan plan = scheduler_.plan(options_.clock ? options_.clock() : 0);
  for (const SequenceId sequence : plan.expired)
    if (running_.contains(sequence)) finish(sequence, FinishReason::deadline);
  if (plan.runs.empty()) {
    MEGATRON_CHECK(plan.copies.empty(), "blocks are copied for no pass");
    scheduler_.advance(plan, {});
    return std::exchange(news_, {});
  }
  std::vector<RunResult> results;
  const double begin_s = monotonic_seconds();
  double drafted_s = begin_s;
  try {
    const Drafts drafts = propose(plan);
    drafted_s = monotonic_seconds();
    results = compute(plan, drafts);
  } catch (...) {
    recompute_all();
    throw;
  }
  std::vector<std::vector<std::int64_t>> ids(results.size());
  std::vector<std::int64_t> num_drawn;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].error)
      for (const SampledToken& token : results[i].drawn) ids[i].push_back(token.id);
    num_drawn.push_back(std::ssize(ids[i]));
  }
  if (options_.speculation.stats != nullptr)
    options_.speculation.stats->add(plan.runs, num_drawn, drafted_s - begin_s,
                                    monotonic_seconds() - drafted_s);
  scheduler_.advance(plan, ids);
  keep_states();
  for (std::size_t i = 0; i < results.size(); ++i)
    if (running_.contains(plan.runs[i].sequence))  // no error of another of its texts has ended it
      take(plan.runs[i].sequence, std::move(results[i]));
  return std::exchange(news_, {});
}

void Engine::place(SequenceCache& cache, const ScheduledRun& run) {
  cache.blocks = scheduler_.blocks(run.sequence);
  const bool goes_on = std::exchange(cache.length, run.first) == run.first;
  if (goes_on || !model_.model().keeps_states()) return;
  const auto last = static_cast<std::size_t>(run.first / kBlockPositions) - 1;
  const SequenceCache none(memory_.cache);
  cache.copy_states(run.first == 0 ? none : snapshots_.at(cache.blocks[last]));
}

void Engine::keep_states() {
  for (const StateSnapshot& taken : scheduler_.snapshots())
    snapshots_.insert_or_assign(taken.block, SequenceCache(memory_.cache))
        .first->second.copy_states(running_.at(taken.sequence)->cache);
  std::erase_if(snapshots_, [this](const auto& snapshot) {
    return !scheduler_.pool().has_snapshot(snapshot.first);
  });
}

void Engine::allow_drafts(SequenceId sequence) {
  scheduler_.set_max_drafts(sequence, options_.speculation.config.num_speculative_tokens);
}

Engine::Drafts Engine::propose(StepPlan& plan) {
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

std::int64_t Engine::num_logits(const ScheduledRun& run) const {
  const Group& group = *running_.at(run.sequence)->group;
  const std::int64_t end = run.first + run.count,
                     first = std::max(run.first, group.next_scored() - 1);
  if (group.request.params.prompt_logprobs &&
      first < std::min(end, std::ssize(group.request.prompt) - 1))
    return end - first;
  return run.samples ? 1 + run.num_drafts : 0;
}

at::Tensor Engine::logits_of(const StepPlan& plan, const Drafts& drafts) {
  const c10::InferenceMode no_gradients;
  memory_.copy(plan.copies);
  std::vector<std::vector<std::int64_t>> tokens;
  Caches caches;
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const auto known = std::span(scheduler_.tokens(run.sequence))
                           .subspan(static_cast<std::size_t>(run.first),
                                    static_cast<std::size_t>(run.count - run.num_drafts));
    auto& own = tokens.emplace_back(known.begin(), known.end());
    for (const DraftToken& draft : drafts[i]) own.push_back(draft.id);
    caches.push_back(&running_.at(run.sequence)->cache);
    place(*caches.back(), run);
    counts.push_back(num_logits(run));
  }
  const bool observes = drafter_->observes();
  at::Tensor rows;
  const at::Tensor logits =
      next_logits(model_, {.microbatch = microbatch_of({tokens.begin(), tokens.end()}),
                           .caches = &caches,
                           .num_logits = std::move(counts),
                           .rows = observes ? &rows : nullptr});
  for (const SequenceCache* cache : caches)
    MEGATRON_CHECK(model_.model().keeps_states() || !cache->has_states(),
                   "a layer keeps a cache of its own, but Model::keeps_states() is false");
  std::int64_t row = 0;
  for (const ScheduledRun& run : plan.runs) {
    const Group& group = *running_.at(run.sequence)->group;
    const std::int64_t first = std::exchange(row, row + run.count);
    if (observes && !group.search && group.max_new_tokens > 1)
      drafter_->observe(run, rows.narrow(0, first, run.count));
  }
  return logits;
}

std::vector<Engine::RunResult> Engine::compute(const StepPlan& plan, const Drafts& drafts) {
  const at::Tensor logits = logits_of(plan, drafts);
  std::vector<RunResult> results(plan.runs.size());
  std::vector<GivenRow> given;
  std::vector<SamplingRun> sampled;
  std::vector<const std::string*> sources;  // of what is sampled
  const auto keep_error = [](RunResult& result, const auto& body) {
    try {
      if (!result.error) body();
    } catch (const UserError&) {
      result.error = std::current_exception();
    }
  };
  const auto check = [this](const std::string& source, std::span<const float> row,
                            std::int64_t position) {
    check_logits(model_.model(), row, source + ", position " + std::to_string(position));
  };
  std::size_t next_row = 0;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const Running& text = *running_.at(run.sequence);
    const TextRequest& request = text.group->request;
    const std::int64_t num_rows = num_logits(run);
    std::int64_t next = run.first + run.count - num_rows + 1;  // position of a row's next token
    const std::int64_t end = std::min(next + num_rows, std::ssize(request.prompt));
    for (; next < end; ++next) {
      const std::int64_t id = request.prompt[static_cast<std::size_t>(next)];
      given.push_back({row_of(logits, next_row++), id, request.params.logprobs});
      results[i].scored.push_back({.id = id});
    }
    if (!run.samples) continue;
    const std::span<const float> row = row_of(logits, next_row);
    next_row += 1 + drafts[i].size();
    if (text.group->search) {
      keep_error(results[i], [&] {
        check(request.source, row, next);
        results[i].logprobs = text.penalized_logprobs(row);
      });
      continue;
    }
    const std::size_t num_logits = row.size() * (1 + drafts[i].size());
    sampled.push_back({&text.sampler, {row.data(), num_logits}, next, drafts[i]});
    for (const auto& sibling : text.siblings) sampled.push_back({&sibling->sampler, row, next});
    sources.resize(sampled.size(), &request.source);
  }
  std::vector<SampledToken> scored = score_rows(given);
  std::vector<SampledRun> drawn =
      sample_runs(sampled, [&](std::size_t index, std::span<const float> row,
                               std::int64_t position) { check(*sources[index], row, position); });
  std::size_t next_scored = 0, next_drawn = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Running& text = *running_.at(plan.runs[i].sequence);
    const Group& group = *text.group;
    std::int64_t number = group.next_scored();
    for (SampledToken& token : results[i].scored) {
      token = std::move(scored[next_scored]);
      const std::span<const float> row = given[next_scored++].logits;
      keep_error(results[i], [&] {
        check_score(model_.model(), row, token.logprob, group.request.source, number++);
      });
    }
    if (!plan.runs[i].samples || group.search) continue;
    const auto draw = [&] {
      SampledRun& own = drawn[next_drawn++];
      if (!results[i].error) results[i].error = own.error;
      return std::move(own.tokens);
    };
    results[i].drawn = draw();
    for (std::size_t k = 0; k < text.siblings.size(); ++k)
      std::ranges::move(draw(), std::back_inserter(results[i].firsts));
  }
  return results;
}

void Engine::take(SequenceId sequence, RunResult result) {
  Running& text = *running_.at(sequence);
  Group& group = *text.group;
  if (result.error) {
    const SequenceId request = group.id;
    cancel(request);
    news_.push_back({.request = request, .is_last = true, .error = result.error});
    return;
  }
  std::ranges::move(result.scored, std::back_inserter(group.prompt_tokens));
  if (group.max_new_tokens == 0) {
    if (!scheduler_.contains(sequence)) finish(sequence, FinishReason::length);
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
    std::unique_ptr<Running> sibling = std::move(text.siblings[i]);
    if (append(*sibling, result.firsts[i])) continue;
    sibling->cache = text.cache.fork();
    const SequenceId fork =
        scheduler_.fork(sequence, std::ssize(group.request.prompt), result.firsts[i].id);
    running_.emplace(fork, std::move(sibling));
    allow_drafts(fork);
  }
  if (!result.firsts.empty()) text.siblings.clear();
  if (has_ended)
    drop(sequence);
  else if (!result.firsts.empty())
    allow_drafts(sequence);
}

void Engine::continue_beams(Group& group) {
  std::vector<std::span<const float>> logprobs;
  for (const SequenceId beam : group.beams) logprobs.emplace_back(running_.at(beam)->logprobs);
  group.search->step(logprobs);
  const std::vector<SequenceId> parents = std::exchange(group.beams, {});
  for (const Beam& beam : group.search->running()) {
    const SequenceId parent = parents[beam.parent];
    const Running& from = *running_.at(parent);
    const SequenceId fork =
        scheduler_.fork(parent, std::ssize(scheduler_.tokens(parent)), beam.ids.back());
    auto next = std::make_unique<Running>(from.group, 0, options_, memory_.cache);
    next->sampler = from.sampler;
    next->sampler.append(beam.ids.back());
    next->cache = from.cache.fork();
    running_.emplace(fork, std::move(next));
    group.beams.push_back(fork);
  }
  if (group.beams.empty()) finish_beams(group, group.limit());
  for (const SequenceId parent : parents) drop(parent);
}

void Engine::tell(Running& text, std::optional<std::int64_t> token,
                  std::optional<FinishReason> reason) {
  Update& update = news_.emplace_back();
  update.request = text.group->id;
  update.text = text.number;
  update.token = token;
  if (!reason) return;
  update.finished = text.take_result(*reason);
  update.is_last = --text.group->num_open == 0;
}

bool Engine::append(Running& text, const SampledToken& token) {
  const std::size_t before = text.result.ids.size();
  const std::optional<FinishReason> reason = text.append(token);
  const bool is_kept = text.result.ids.size() > before;  // not a stop token
  tell(text, is_kept ? std::optional(token.id) : std::nullopt, reason);
  return reason.has_value();
}

void Engine::finish_beams(Group& group, FinishReason reason) {
  const std::vector<FinishedBeam>& beams = group.search->finished();
  const std::int64_t count = std::min(std::ssize(beams), group.request.params.n);
  for (std::int64_t i = 0; i < count; ++i) {
    const FinishedBeam& beam = beams[static_cast<std::size_t>(i)];
    Generation result{.ids = beam.ids,
                      .finish_reason = beam.has_stopped ? FinishReason::stop : reason,
                      .score = beam.score};
    if (i == 0) result.prompt_tokens = group.prompt_tokens;
    news_.push_back({.request = group.id, .text = i, .finished = std::move(result)});
  }
  if (count == 0) news_.push_back({.request = group.id});
  news_.back().is_last = true;
}

void Engine::finish(SequenceId sequence, FinishReason reason) {
  Running& text = *running_.at(sequence);
  const std::shared_ptr<Group> group = text.group;
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

void Engine::drop(SequenceId sequence) {
  scheduler_.drop(sequence);
  drafter_->forget(sequence);
  running_.erase(sequence);
}

}  // namespace megatron
