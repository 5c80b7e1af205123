// Plans a step: which sequences are admitted or preempted, and the chunks of tokens that they get.
#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/inference/scheduler.h"

namespace megatron {

void Scheduler::preempt(Sequence& sequence, StepPlan& plan) {
  swap_out(sequence, plan);
  release(sequence);
  running_.erase(sequence.order);
  if (!sequence.order.is_held) waiting_.insert(sequence.order);
  plan.preempted.push_back(sequence.order.sequence);
}

void Scheduler::preempt_last(Step& step) {
  Sequence& last = at(running_.rbegin()->sequence);
  if (last.num_left() == 1) --step.num_decodes;
  preempt(last, step.plan);
}

bool Scheduler::has_room(const Sequence& sequence) const {
  return num_running() < options_.max_running &&
         num_lacking(sequence, std::ssize(sequence.tokens)) + num_running() <=
             pool_.num_available();
}

std::int64_t Scheduler::max_count(const Sequence& sequence, const Step& step) const {
  const std::int64_t most = std::clamp<std::int64_t>(step.tokens_free(), 0, sequence.num_left()),
                     num_outputs = std::max<std::int64_t>(0, most - sequence.num_silent()),
                     excess = num_outputs - step.outputs_left;
  return options_.chunked_prefill && excess > 0 ? most - excess : most;
}

bool Scheduler::admit(Sequence& sequence, Step& step) {
  attach_prefix(sequence);
  const std::size_t num_found = sequence.blocks.size();
  const bool swaps_in = sequence.num_swapped > sequence.num_computed;
  if (swaps_in) sequence.num_computed = sequence.num_swapped;
  const std::int64_t wanted = sequence.num_left(),
                     encoded = sequence.num_computed == 0 ? sequence.num_encoded : 0;
  step.tokens_left -= encoded;
  const bool in_chunks = options_.chunked_prefill || wanted + encoded > options_.max_step_tokens;
  step.admits = max_count(sequence, step) >= (in_chunks ? 1 : wanted);
  while (step.admits && !has_room(sequence)) {
    const Order& last = *running_.rbegin();
    step.admits = last.is_held || last.priority > sequence.order.priority;
    if (step.admits) preempt_last(step);
  }
  if (!step.admits) {
    step.tokens_left += encoded;
    release(sequence);
    return false;
  }
  waiting_.erase(sequence.order);
  running_.insert(sequence.order);
  extend(sequence, std::ssize(sequence.tokens), step.plan);
  if (swaps_in) swap_in(sequence, num_found, step.plan);
  release_swapped(sequence);
  return true;
}

void Scheduler::plan_run(Sequence& sequence, Step& step) {
  const std::int64_t most = max_count(sequence, step);
  if (most == 0) return;
  std::int64_t end = sequence.num_computed + most;
  const std::int64_t end_of_block = end / options_.block_size * options_.block_size;
  const bool ends_chunks = options_.keeps_states && options_.prefix_cache;
  if (ends_chunks && options_.chunked_prefill && end_of_block > sequence.num_computed) {
    const bool branches = sequence.num_computed < sequence.branch && sequence.branch < end;
    end = branches ? sequence.branch : end_of_block;
  }
  const std::int64_t count = end - sequence.num_computed;
  while (num_lacking(sequence, end) > pool_.num_available()) {
    if (running_.rbegin()->sequence == sequence.order.sequence) {
      preempt(sequence, step.plan);
      step.admits = false;
      return;
    }
    preempt_last(step);
  }
  extend(sequence, end, step.plan);
  const std::int64_t num_tokens = std::ssize(sequence.tokens);
  step.plan.runs.push_back({.sequence = sequence.order.sequence,
                            .first = sequence.num_computed,
                            .count = count,
                            .samples = end == num_tokens && num_tokens < sequence.max_tokens});
  step.tokens_left -= count;
  step.outputs_left -=
      std::clamp<std::int64_t>(count - sequence.num_silent(), 0, step.outputs_left);
}

void Scheduler::add_drafts(Step& step) {
  if (options_.keeps_states) return;
  for (ScheduledRun& run : step.plan.runs) {
    if (!run.samples || run.count != 1) continue;
    Sequence& sequence = at(run.sequence);
    const std::int64_t num_tokens = std::ssize(sequence.tokens);
    // One more token is sampled behind the drafts.
    std::int64_t count =
        std::min({sequence.max_drafts, step.tokens_left, sequence.max_tokens - num_tokens - 1});
    while (count > 0 && num_lacking(sequence, num_tokens + count) > pool_.num_available()) --count;
    if (count <= 0) continue;
    extend(sequence, num_tokens + count, step.plan);
    run.count += count;
    run.num_drafts = count;
    step.tokens_left -= count;
  }
}

std::optional<Scheduler::Order> Scheduler::next_after(const std::optional<Order>& last,
                                                      const Step& step) const {
  const auto after = [&last](const std::set<Order>& orders) {
    return last ? orders.upper_bound(*last) : orders.begin();
  };
  const auto running = after(running_);
  const auto waiting = step.admits ? after(waiting_) : waiting_.end();
  if (waiting != waiting_.end() && (running == running_.end() || *waiting < *running))
    return *waiting;
  return running == running_.end() ? std::nullopt : std::optional(*running);
}

StepPlan Scheduler::plan(double now_s) {
  MEGATRON_CHECK(!has_plan_, "the last plan has not been advanced");
  has_plan_ = true;
  Step step{.tokens_left = options_.max_step_tokens, .outputs_left = options_.max_step_outputs};
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_s) {
    step.plan.expired.push_back(deadlines_.begin()->second);
    drop(step.plan.expired.back());
  }
  const auto decodes = [this](const Order& order) { return at(order.sequence).num_left() == 1; };
  step.num_decodes = std::ranges::count_if(running_, decodes);
  // Only sequences behind the present one are preempted, so what is planned stays.
  for (auto next = next_after(std::nullopt, step); next; next = next_after(next, step)) {
    Sequence& sequence = at(next->sequence);
    if (waiting_.contains(*next)) {
      if (!admit(sequence, step)) continue;
    } else if (sequence.num_left() == 1) {
      --step.num_decodes;
    }
    plan_run(sequence, step);
  }
  add_drafts(step);
  return std::move(step.plan);
}

}  // namespace megatron
