#include "megatron/inference/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <string>

#include "megatron/base/division.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr const char* kMaxTokens = "--inference-dynamic-batching-max-tokens";
constexpr const char* kMaxRequests = "--inference-dynamic-batching-max-requests";
constexpr const char* kMaxLength = "--inference-max-seq-length";
constexpr const char* kBufferSize = "--inference-dynamic-batching-buffer-size-gb";

SchedulerOptions checked(const SchedulerOptions& options) {
  MEGATRON_CHECK(options.block_size > 0, options.block_size, " tokens in a block");
  MEGATRON_CHECK(options.max_step_outputs > 0, options.max_step_outputs, " outputs in a step");
  if (options.max_running < 1)
    throw UserError(
        {kMaxRequests, std::to_string(options.max_running), "give a number of at least 1"});
  if (options.num_blocks < 1) {
    throw UserError({kBufferSize,
                     "has no room for a block of " + std::to_string(options.block_size) + " tokens",
                     "give the KV cache more memory"});
  }
  if (options.max_step_tokens < options.max_running) {
    throw UserError({kMaxTokens,
                     std::to_string(options.max_step_tokens) + " is less than the " +
                         std::to_string(options.max_running) + " of " + kMaxRequests,
                     "raise it: each running sequence computes a token in a step"});
  }
  return options;
}

}  // namespace

bool Scheduler::Sequence::has_ended() const {
  const std::int64_t num_tokens = std::ssize(tokens);
  return num_tokens == max_tokens && (num_tokens > num_prompt_tokens || num_left() == 0);
}

std::int64_t Scheduler::Sequence::num_silent() const {
  const std::int64_t next = std::max(num_computed, first_output);
  return next < num_prompt_tokens - 1 ? next - num_computed : kNoLimit;
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(checked(options)),
      pool_(options.num_blocks, options.prefix_cache),
      swap_pool_(options.num_swap_blocks, false) {}

Scheduler::Sequence& Scheduler::at(SequenceId sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

const Scheduler::Sequence& Scheduler::at(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  MEGATRON_CHECK(found != sequences_.end(), "there is no sequence ", sequence);
  return found->second;
}

void Scheduler::check_fits(const Request& request) const {
  const std::int64_t num_prompt_tokens = std::ssize(request.prompt);
  const std::int64_t capacity = options_.num_blocks * options_.block_size;
  const std::string prompt = request.name + " of " + std::to_string(num_prompt_tokens) + " tokens",
                    whole = prompt + " and up to " + std::to_string(request.max_new_tokens) +
                            " new ones";
  if (request.prompt.empty())
    throw UserError({request.name, "it is empty", "give at least a token"});
  if (request.max_new_tokens < 0) {
    throw UserError({"the number of new tokens", std::to_string(request.max_new_tokens),
                     "give a number of at least 0"});
  }
  if (std::isnan(request.deadline_s))
    throw UserError({request.name + ": deadline", "NaN", "give a time in seconds"});
  const std::int64_t longest = options_.max_sequence_length;
  if (longest <= capacity &&
      (num_prompt_tokens > longest || request.max_new_tokens > longest - num_prompt_tokens)) {
    throw UserError({whole, std::string(kMaxLength) + " is " + std::to_string(longest),
                     "raise it, or ask for fewer tokens"});
  }
  // The last new token is not computed.
  if (num_prompt_tokens > capacity || request.max_new_tokens - 1 > capacity - num_prompt_tokens) {
    throw UserError({whole, "the KV cache has room for " + std::to_string(capacity) + " tokens",
                     std::string("raise ") + kBufferSize + ", or ask for fewer tokens"});
  }
  if (!options_.chunked_prefill && num_prompt_tokens > options_.max_step_tokens) {
    throw UserError({prompt,
                     "a step computes at most " + std::to_string(options_.max_step_tokens) +
                         ", and prompts are computed whole",
                     std::string("give --enable-chunked-prefill, or raise ") + kMaxTokens});
  }
}

SequenceId Scheduler::add(Request request) {
  check_fits(request);
  const SequenceId id = next_sequence_++;
  const std::int64_t num_prompt_tokens = std::ssize(request.prompt);
  const Order order{.priority = request.priority, .arrival = id, .sequence = id};
  waiting_.insert(order);
  deadlines_.emplace(request.deadline_s, id);
  sequences_.emplace(id, Sequence{.order = order,
                                  .tokens = std::move(request.prompt),
                                  .num_prompt_tokens = num_prompt_tokens,
                                  .max_tokens = num_prompt_tokens + request.max_new_tokens,
                                  .deadline_s = request.deadline_s,
                                  .first_output = request.first_output});
  return id;
}

SequenceId Scheduler::fork(SequenceId sequence, std::int64_t num_tokens, std::int64_t token) {
  const Sequence& from = at(sequence);
  MEGATRON_CHECK(num_tokens >= from.num_prompt_tokens && num_tokens <= std::ssize(from.tokens) &&
                     num_tokens + 1 < from.max_tokens,
                 "fork at ", num_tokens, " of ", from.tokens.size(), " tokens, at most ",
                 from.max_tokens);
  const SequenceId id = next_sequence_++;
  Sequence copy = from;
  copy.swapped.clear();
  copy.num_swapped = 0;
  copy.order = {.priority = from.order.priority, .arrival = from.order.arrival, .sequence = id};
  copy.tokens.resize(static_cast<std::size_t>(num_tokens));
  copy.tokens.push_back(token);
  copy.first_output = kNoLimit;
  copy.num_computed = std::min(from.num_computed, num_tokens);
  if (options_.keeps_states && copy.num_computed < from.num_computed) copy.num_computed = 0;
  // Without a place it computes its tokens again, as after preemption.
  const bool runs = copy.num_computed > 0 && num_running() < options_.max_running;
  if (!runs) copy.num_computed = 0;
  copy.blocks.resize(static_cast<std::size_t>(ceil_div(copy.num_computed, options_.block_size)));
  for (const BlockId block : copy.blocks) pool_.retain(block);
  (runs ? running_ : waiting_).insert(copy.order);
  deadlines_.emplace(copy.deadline_s, id);
  sequences_.emplace(id, std::move(copy));
  return id;
}

bool Scheduler::drop(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return false;
  release(found->second);
  release_swapped(found->second);
  running_.erase(found->second.order);
  waiting_.erase(found->second.order);
  deadlines_.erase({found->second.deadline_s, sequence});
  sequences_.erase(found);
  return true;
}

void Scheduler::set_max_drafts(SequenceId sequence, std::int64_t count) {
  at(sequence).max_drafts = count;
}

void Scheduler::recompute_all() {
  has_plan_ = false;
  StepPlan none;
  while (!running_.empty()) preempt(at(running_.rbegin()->sequence), none);
  for (auto& [id, sequence] : sequences_) release_swapped(sequence);
  pool_.withdraw_all();
}

void Scheduler::release(Sequence& sequence) {
  for (const BlockId block : sequence.blocks | std::views::reverse) pool_.release(block);
  sequence.blocks.clear();
  sequence.num_computed = 0;
}

void Scheduler::swap_out(Sequence& sequence, StepPlan& plan) {
  const std::int64_t count = ceil_div(sequence.num_computed, options_.block_size);
  if (sequence.order.is_held || count > swap_pool_.num_available()) return;
  for (std::int64_t i = 0; i < count; ++i) {
    sequence.swapped.push_back(swap_pool_.allocate());
    plan.copies.push_back({.from = sequence.blocks[static_cast<std::size_t>(i)],
                           .to = sequence.swapped.back(),
                           .kind = CopyKind::swap_out});
  }
  sequence.num_swapped = sequence.num_computed;
}

void Scheduler::swap_in(Sequence& sequence, std::size_t num_found, StepPlan& plan) {
  for (std::size_t i = num_found; i < sequence.swapped.size(); ++i)
    plan.copies.push_back(
        {.from = sequence.swapped[i], .to = sequence.blocks[i], .kind = CopyKind::swap_in});
  // What was published before may have been evicted since.
  sequence.num_computed = static_cast<std::int64_t>(num_found) * options_.block_size;
  count_computed(sequence, sequence.num_swapped);
}

void Scheduler::release_swapped(Sequence& sequence) {
  for (const BlockId block : sequence.swapped) swap_pool_.release(block);
  sequence.swapped.clear();
  sequence.num_swapped = 0;
}

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

std::int64_t Scheduler::num_lacking(const Sequence& sequence, std::int64_t end) const {
  const auto first = static_cast<std::size_t>(sequence.num_computed / options_.block_size);
  const bool copies =
      first < sequence.blocks.size() && pool_.num_references(sequence.blocks[first]) > 1;
  const std::int64_t more = ceil_div(end, options_.block_size) - std::ssize(sequence.blocks);
  return std::max<std::int64_t>(0, more) + (copies ? 1 : 0);
}

void Scheduler::extend(Sequence& sequence, std::int64_t end, StepPlan& plan) {
  const auto first = static_cast<std::size_t>(sequence.num_computed / options_.block_size);
  if (first < sequence.blocks.size()) {
    BlockId& block = sequence.blocks[first];
    if (pool_.num_references(block) > 1) {
      const BlockId own = pool_.allocate();
      plan.copies.push_back({.from = block, .to = own});
      pool_.release(block);
      block = own;
    } else {
      pool_.withdraw(block);
    }
  }
  while (std::ssize(sequence.blocks) * options_.block_size < end)
    sequence.blocks.push_back(pool_.allocate());
}

void Scheduler::attach_prefix(Sequence& sequence) {
  const std::span<const std::int64_t> tokens(sequence.tokens);
  const auto size = static_cast<std::size_t>(options_.block_size),
             end = std::min(tokens.size(), static_cast<std::size_t>(sequence.first_output));
  for (std::size_t start = 0; start + size <= end; start += size) {
    const auto parent =
        sequence.blocks.empty() ? std::nullopt : std::optional(sequence.blocks.back());
    const auto found = pool_.find(parent, tokens.subspan(start, size));
    if (!found) break;
    pool_.retain(*found);
    sequence.blocks.push_back(*found);
  }
  std::vector<BlockId>& blocks = sequence.blocks;
  while (options_.keeps_states && !blocks.empty() &&
         (blocks.size() * size >= tokens.size() || !pool_.has_snapshot(blocks.back()))) {
    pool_.release(blocks.back());
    blocks.pop_back();
  }
  // The last token is computed in any case: what follows is sampled from its output.
  sequence.num_computed =
      std::min(std::ssize(sequence.blocks) * options_.block_size, std::ssize(sequence.tokens) - 1);
}

bool Scheduler::has_room(const Sequence& sequence) const {
  return num_running() < options_.max_running &&
         num_lacking(sequence, std::ssize(sequence.tokens)) + num_running() <=
             pool_.num_available();
}

std::int64_t Scheduler::max_count(const Sequence& sequence, const Step& step) const {
  const std::int64_t most = std::min(sequence.num_left(), step.tokens_free()),
                     num_outputs = std::max<std::int64_t>(0, most - sequence.num_silent()),
                     excess = num_outputs - step.outputs_left;
  return options_.chunked_prefill && excess > 0 ? most - excess : most;
}

bool Scheduler::admit(Sequence& sequence, Step& step) {
  attach_prefix(sequence);
  const std::size_t num_found = sequence.blocks.size();
  const bool swaps_in = sequence.num_swapped > sequence.num_computed;
  if (swaps_in) sequence.num_computed = sequence.num_swapped;
  const std::int64_t wanted = sequence.num_left();
  const bool in_chunks = options_.chunked_prefill || wanted > options_.max_step_tokens;
  step.admits = max_count(sequence, step) >= (in_chunks ? 1 : wanted);
  while (step.admits && !has_room(sequence)) {
    const Order& last = *running_.rbegin();
    step.admits = last.is_held || last.priority > sequence.order.priority;
    if (step.admits) preempt_last(step);
  }
  if (!step.admits) {
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
  if (ends_chunks && options_.chunked_prefill && end_of_block > sequence.num_computed)
    end = end_of_block;
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

void Scheduler::count_computed(Sequence& sequence, std::int64_t num_computed) {
  const auto size = static_cast<std::size_t>(options_.block_size);
  const auto end = static_cast<std::size_t>(num_computed) / size;
  const std::span<const std::int64_t> tokens(sequence.tokens);
  for (auto i = static_cast<std::size_t>(sequence.num_computed) / size; i < end; ++i) {
    const auto parent = i == 0 ? std::nullopt : std::optional(sequence.blocks[i - 1]);
    BlockId& block = sequence.blocks[i];
    block = pool_.publish(block, parent, tokens.subspan(i * size, size));
  }
  sequence.num_computed = num_computed;
}

std::vector<SequenceId> Scheduler::advance(const StepPlan& plan,
                                           std::span<const std::vector<std::int64_t>> tokens) {
  MEGATRON_CHECK(has_plan_ && tokens.size() == plan.runs.size(), "results of ", tokens.size(),
                 " runs for a plan of ", plan.runs.size());
  has_plan_ = false;
  snapshots_.clear();
  std::vector<SequenceId> ended;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const ScheduledRun& run = plan.runs[i];
    const std::int64_t num_sampled = std::ssize(tokens[i]);
    MEGATRON_CHECK(num_sampled <= (run.samples ? 1 + run.num_drafts : 0), num_sampled,
                   " tokens for a run of ", run.count, " with ", run.num_drafts, " drafts");
    if (!contains(run.sequence)) continue;  // dropped while the pass ran
    Sequence& sequence = at(run.sequence);
    sequence.tokens.insert(sequence.tokens.end(), tokens[i].begin(), tokens[i].end());
    // All sampled tokens but the last are drafts that the pass has computed.
    count_computed(sequence, run.first + run.count - run.num_drafts +
                                 std::max<std::int64_t>(0, num_sampled - 1));
    if (options_.keeps_states && sequence.num_computed % options_.block_size == 0) {
      const BlockId last =
          sequence
              .blocks[static_cast<std::size_t>(sequence.num_computed / options_.block_size - 1)];
      if (pool_.add_snapshot(last)) snapshots_.push_back({run.sequence, last});
    }
    if (sequence.has_ended()) {
      ended.push_back(run.sequence);
      drop(run.sequence);
    } else if (run.samples && num_sampled == 0) {
      running_.erase(sequence.order);
      sequence.order.is_held = true;
      running_.insert(sequence.order);
    }
  }
  return ended;
}

}  // namespace megatron
