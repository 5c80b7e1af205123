// The passes of an engine: caches, drafts and logits of the planned runs, and the tokens that are
// sampled and scored from these.
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/running_text.h"

namespace megatron {
namespace {

/// One of so many steps drafts nothing, to tell whether drafts pay.
constexpr std::int64_t kStepsPerMeasurement = 16;

/// Calls body() and keeps the UserError that it throws. Does nothing if there is an error already.
template <class Body>
void keep_error(std::exception_ptr& error, const Body& body) {
  try {
    if (!error) body();
  } catch (const UserError&) {
    error = std::current_exception();
  }
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

at::Tensor next_logits(const ModelRunner& model, Pass pass) {
  pass.wants = Wants::last_logits;
  return model.infer(pass).to(c10::kCPU, c10::kFloat).contiguous();
}

std::span<const float> row_of(const at::Tensor& logits, std::size_t row) {
  const auto columns = static_cast<std::size_t>(logits.size(1));
  return {logits.const_data_ptr<float>() + row * columns, columns};
}

void Engine::prepare_cache(SequenceCache& cache, const ScheduledRun& run) {
  cache.blocks = scheduler_.blocks(run.sequence);
  if (run.first == 0) cache.num_encoded = 0;
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
  const SequenceGroup& group = *running_.at(run.sequence)->group;
  const std::int64_t end = run.first + run.count,
                     first = std::max(run.first, group.next_scored() - 1);
  if (group.request.params.prompt_logprobs &&
      first < std::min(end, std::ssize(group.request.prompt) - 1))
    return end - first;
  return run.samples ? 1 + run.num_drafts : 0;
}

Engine::PassOutput Engine::run_pass(const StepPlan& plan, const Drafts& drafts) {
  const c10::InferenceMode no_gradients;
  memory_.copy(plan.copies);
  std::vector<std::vector<std::int64_t>> tokens;
  std::vector<std::span<const std::int64_t>> encoded;
  Caches caches;
  std::vector<std::int64_t> counts;
  LastHidden hidden;
  bool wants_experts = false;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const auto known = std::span(scheduler_.tokens(run.sequence))
                           .subspan(static_cast<std::size_t>(run.first),
                                    static_cast<std::size_t>(run.count - run.num_drafts));
    auto& own = tokens.emplace_back(known.begin(), known.end());
    for (const DraftToken& draft : drafts[i]) own.push_back(draft.id);
    caches.push_back(&running_.at(run.sequence)->cache);
    prepare_cache(*caches.back(), run);
    counts.push_back(num_logits(run));
    const SequenceGroup& group = *running_.at(run.sequence)->group;
    if (run.first == 0 && !group.request.encoded.empty())
      encoded.emplace_back(group.request.encoded);
    hidden.counts.push_back(group.pooler.num_rows(run.first, run.first + run.count));
    wants_experts |= group.request.params.return_routed_experts;
  }
  const bool observes = drafter_->observes(),
             pools = std::ranges::any_of(hidden.counts, [](auto count) { return count > 0; });
  at::Tensor rows, experts;
  const Microbatch texts = encoded.empty() ? Microbatch() : microbatch_of(encoded);
  PassOutput output{
      next_logits(model_, {.microbatch = model_.rows_of({tokens.begin(), tokens.end()}, caches),
                           .caches = &caches,
                           .encoder = encoded.empty() ? nullptr : &texts,
                           .num_logits = std::move(counts),
                           .rows = observes ? &rows : nullptr,
                           .last_hidden = pools ? &hidden : nullptr,
                           .routed_experts = wants_experts ? &experts : nullptr})};
  if (pools) output.hidden = hidden.rows.to(c10::kCPU).contiguous();
  if (wants_experts) output.routed_experts = experts_by_token(experts, model_.config());
  for (const SequenceCache* cache : caches)
    MEGATRON_CHECK(model_.model().keeps_states() || !cache->has_states(),
                   "a layer keeps a cache of its own, but Model::keeps_states() is false");
  std::int64_t row = 0;
  for (const ScheduledRun& run : plan.runs) {
    const SequenceGroup& group = *running_.at(run.sequence)->group;
    const std::int64_t first = std::exchange(row, row + run.count);
    if (observes && !group.search && group.max_new_tokens > 1)
      drafter_->observe(run, rows.narrow(0, first, run.count));
  }
  return output;
}

void Engine::divide(const PassOutput& output, const StepPlan& plan,
                    std::vector<RunResult>& results) {
  std::int64_t next_hidden = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const SequenceGroup& group = *running_.at(run.sequence)->group;
    if (const auto count = group.pooler.num_rows(run.first, run.first + run.count); count > 0) {
      results[i].hidden =
          output.hidden.narrow(0, std::exchange(next_hidden, next_hidden + count), count);
      keep_error(results[i].error, [&] {
        if (!std::isfinite(results[i].hidden.sum().item<double>()))
          throw_non_finite_logits(model_.model(), group.request.source + ": the embedding",
                                  "not finite");
      });
    }
  }
}

void Engine::divide_experts(const PassOutput& output, const StepPlan& plan,
                            std::vector<RunResult>& results) const {
  if (!output.routed_experts.defined()) return;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const std::int64_t first = std::exchange(next, next + run.count);
    if (!running_.at(run.sequence)->group->request.params.return_routed_experts) continue;
    const std::int64_t num_accepted = std::max<std::int64_t>(0, std::ssize(results[i].drawn) - 1);
    results[i].first = run.first;
    results[i].routed_experts =
        output.routed_experts.narrow(0, first, run.count - run.num_drafts + num_accepted);
  }
}

std::vector<Engine::RunResult> Engine::compute(const StepPlan& plan, const Drafts& drafts) {
  const PassOutput output = run_pass(plan, drafts);
  const at::Tensor& logits = output.logits;
  std::vector<RunResult> results(plan.runs.size());
  divide(output, plan, results);
  std::vector<GivenRow> given;
  std::vector<SamplingRun> sampled;
  std::vector<const std::string*> sources;  // of what is sampled
  const auto check = [this](const std::string& source, std::span<const float> row,
                            std::int64_t position) {
    check_logits(model_.model(), row, source + ", position " + std::to_string(position));
  };
  std::size_t next_row = 0;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const RunningText& text = *running_.at(run.sequence);
    const TextRequest& request = text.group->request;
    const std::int64_t num_rows = num_logits(run);
    std::int64_t next = run.first + run.count - num_rows + 1;  // position of a row's next token
    const std::int64_t end = std::min(next + num_rows, std::ssize(request.prompt));
    for (; next < end; ++next) {
      const std::int64_t id = request.prompt[static_cast<std::size_t>(next)];
      given.push_back({row_of(logits, next_row++), id,
                       std::max(request.params.logprobs, request.params.prompt_best)});
      results[i].scored.push_back({.id = id});
    }
    if (!run.samples) continue;
    const std::span<const float> row = row_of(logits, next_row);
    next_row += 1 + drafts[i].size();
    if (text.group->search) {
      keep_error(results[i].error, [&] {
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
    const RunningText& text = *running_.at(plan.runs[i].sequence);
    const SequenceGroup& group = *text.group;
    std::int64_t number = group.next_scored();
    for (SampledToken& token : results[i].scored) {
      token = std::move(scored[next_scored]);
      const std::span<const float> row = given[next_scored++].logits;
      keep_error(results[i].error, [&] {
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
  divide_experts(output, plan, results);
  return results;
}

}  // namespace megatron
