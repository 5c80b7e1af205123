#include "megatron/inference/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
  const std::int64_t num_prompt_tokens = std::ssize(request.prompt),
                     num_text_tokens = std::max(num_prompt_tokens, request.num_encoded),
                     capacity = options_.num_blocks * options_.block_size;
  const std::string prompt = request.name + " of " + std::to_string(num_text_tokens) + " tokens",
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
      (num_text_tokens > longest || request.max_new_tokens > longest - num_prompt_tokens)) {
    throw UserError({whole, std::string(kMaxLength) + " is " + std::to_string(longest),
                     "raise it, or ask for fewer tokens"});
  }
  // The last new token is not computed.
  if (num_text_tokens > capacity || request.max_new_tokens - 1 > capacity - num_prompt_tokens) {
    throw UserError({whole, "the KV cache has room for " + std::to_string(capacity) + " tokens",
                     std::string("raise ") + kBufferSize + ", or ask for fewer tokens"});
  }
  if (!options_.chunked_prefill && num_prompt_tokens > options_.max_step_tokens) {
    throw UserError({prompt,
                     "a step computes at most " + std::to_string(options_.max_step_tokens) +
                         ", and prompts are computed whole",
                     std::string("give --enable-chunked-prefill, or raise ") + kMaxTokens});
  }
  if (request.num_encoded >= options_.max_step_tokens) {
    throw UserError({prompt,
                     "a step computes at most " + std::to_string(options_.max_step_tokens) +
                         ", and the encoder computes a text whole, with a token of the decoder",
                     std::string("raise ") + kMaxTokens});
  }
}

SequenceId Scheduler::add(Request request) {
  check_fits(request);
  MEGATRON_CHECK(request.num_encoded == 0 || !options_.prefix_cache,
                 "blocks with an encoder's text do not tell it apart");
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
                                  .first_output = request.first_output,
                                  .finds_prefix = request.finds_prefix,
                                  .num_encoded = request.num_encoded});
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
  copy.snapshot_of_answer.reset();
  copy.order = {.priority = from.order.priority, .arrival = from.order.arrival, .sequence = id};
  copy.tokens.resize(static_cast<std::size_t>(num_tokens));
  copy.tokens.push_back(token);
  copy.first_output = kNoLimit;
  copy.num_computed = std::min(from.num_computed, num_tokens);
  if (options_.keeps_states && copy.num_computed < from.num_computed) copy.num_computed = 0;
  // Without a place it computes its tokens again, as after preemption.
  const bool runs = copy.num_computed > 0 && num_running() < options_.max_running;
  if (!runs) copy.num_computed = 0;
  copy.blocks.resize(runs ? static_cast<std::size_t>(num_blocks(copy, copy.num_computed))
                          : std::size_t{0});
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
    if (options_.keeps_states) take_snapshot(sequence);
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
