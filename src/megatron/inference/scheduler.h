// Decides what the next pass computes: continuous batching of sequences that share the blocks of a
// paged KV cache (Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", SOSP 2023), with prompts prefilled in chunks beside the decode steps of others
// (Agrawal et al., "Sarathi-Serve", OSDI 2024).
//
//   const SequenceId sequence = scheduler.add({.prompt = ids, .max_new_tokens = 16});
//   while (!scheduler.is_empty()) {
//     const StepPlan plan = scheduler.plan(now_s);
//     ... copy plan.copies in their order, compute plan.runs, sample a token for each that samples
//     for (SequenceId ended : scheduler.advance(plan, tokens)) ...
//   }
//
// The scheduler reads no clock and draws no random numbers, so ranks that make the same calls make
// the same plans.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/inference/block_pool.h"

namespace megatron {

/// Identifies a sequence of tokens in a Scheduler. Numbers ascend and are never used again.
using SequenceId = std::int64_t;

/// What the scheduler must know of a request for text.
struct Request {
  std::string name = "a prompt";      ///< in messages
  std::vector<std::int64_t> prompt;   ///< at least one token
  std::int64_t max_new_tokens = 128;  ///< 0: the prompt is only computed, such as to score it
  std::int64_t priority = 0;          ///< lower numbers are served first
  /// The time at which it ends unfinished, on the clock that Scheduler::plan() is given.
  double deadline_s = std::numeric_limits<double>::infinity();
  /// The first token of the prompt whose output is wanted, such as to score what follows; past its
  /// end: only the last one's is. Those from it on are computed, not found in blocks of earlier
  /// requests, SchedulerOptions::max_step_outputs at a time.
  std::int64_t first_output = std::numeric_limits<std::int64_t>::max();
  /// Whether blocks of earlier requests may have its beginning, which is then not computed.
  bool finds_prefix = true;
  /// Tokens of a text that an encoder sees whole, in the pass of the first token of the prompt. Its
  /// keys and values are in the blocks of the sequence too (SequenceCache::num_encoded).
  std::int64_t num_encoded = 0;
};

/// More blocks of a KV cache than anybody uses.
inline constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;

struct SchedulerOptions {
  std::int64_t max_running = 256;       ///< sequences that hold blocks at the same time
  std::int64_t max_step_tokens = 2048;  ///< tokens in a pass; at least max_running
  std::int64_t block_size = 128;        ///< tokens in a block
  std::int64_t num_blocks = 1024;
  /// Most tokens of a sequence, the new ones that are asked for included.
  std::int64_t max_sequence_length = std::numeric_limits<std::int64_t>::max();
  /// Whether a prompt may be computed in several passes. A sequence that was preempted may always,
  /// when it has more than max_step_tokens.
  bool chunked_prefill = true;
  bool prefix_cache = true;  ///< whether full blocks are found by later requests
  /// Whether layers keep states beside the blocks, which cannot drop tokens. A sequence then begins
  /// only behind a prefix that has a snapshot of its states (Scheduler::snapshots()), chunks of
  /// prompts end at the ends of blocks, where snapshots are taken, and there are no drafts.
  bool keeps_states = false;
  /// Snapshots that are kept; the one that was used longest ago is forgotten first. They are taken
  /// behind the last full block of a prompt, behind the last one of an answer so far, and where a
  /// prompt leaves the blocks of an earlier one, because others may leave them there, too (Pan et
  /// al. 2024, "Marconi").
  std::int64_t max_snapshots = kMaxBlocks;
  /// Blocks of a second memory, to which those of preempted sequences are copied until they run
  /// again. A sequence for which it has no room is computed again.
  std::int64_t num_swap_blocks = 0;
  /// Outputs of prompts in a pass, if prompts are computed in chunks.
  std::int64_t max_step_outputs = std::numeric_limits<std::int64_t>::max();
};

/// Tokens of one sequence in a pass.
struct ScheduledRun {
  SequenceId sequence = 0;
  std::int64_t first = 0;  ///< position of the first token; those before it are in the cache
  std::int64_t count = 0;  ///< number of tokens, with the drafts
  /// How many of the tokens are drafts, which follow the sequence's own. The caller proposes them;
  /// it may have fewer, and then shortens the run.
  std::int64_t num_drafts = 0;
  /// Whether the run ends the known tokens, so that one is sampled from its last output, or up to
  /// 1 + num_drafts from its last 1 + num_drafts outputs.
  bool samples = false;
  bool operator==(const ScheduledRun&) const = default;
};

enum class CopyKind : std::uint8_t {
  within,    ///< the KV cache
  swap_out,  ///< from the KV cache to the swap memory
  swap_in    ///< from the swap memory to the KV cache
};

struct BlockCopy {
  BlockId from = 0;
  BlockId to = 0;
  CopyKind kind = CopyKind::within;
  bool operator==(const BlockCopy&) const = default;
};

/// The states of a sequence to keep as those behind a block, which then ends its tokens.
struct StateSnapshot {
  SequenceId sequence = 0;
  BlockId block = 0;
  bool operator==(const StateSnapshot&) const = default;
};

/// What one pass does.
struct StepPlan {
  std::vector<ScheduledRun> runs;  ///< at most one for each sequence
  std::vector<BlockCopy> copies;   ///< to do before the pass, in this order, in every layer
  /// Sequences that lost their blocks before the runs. A run may start such a sequence again.
  std::vector<SequenceId> preempted;
  std::vector<SequenceId> expired;  ///< sequences that have ended at their deadline
  bool operator==(const StepPlan&) const = default;
};

/// Sequences wait, run, or are held. A running sequence has a place among max_running and the
/// blocks of its tokens. A held one is not computed again: the caller forks and drops it when
/// all beams of a request are held.
///
/// Order: lower priority number first, then arrival; a fork arrives with the sequence that it comes
/// from. Every running sequence with one token left to compute, which is a decode step, gets it;
/// prefills divide the rest of max_step_tokens in order, and drafts get what is then left. Waiting
/// sequences start in order: none passes an earlier one. When blocks are lacking, the last running
/// sequence in order is preempted: its blocks are swapped out, or computed again where there is no
/// room for them. A waiting sequence preempts only those of a worse priority, and starts only if a
/// block remains for each running sequence, so that it is not preempted soon.
///
/// The first running sequence in order therefore advances in every step, and every sequence ends
/// that is not held, unless requests of better priority come forever.
class Scheduler {
 public:
  /// UserError that names the flag when an option is out of range.
  explicit Scheduler(const SchedulerOptions& options);

  /// Adds a request. UserError that names the flag to change when it could never be computed.
  SequenceId add(Request request);
  /// Adds a sequence of the first `num_tokens` tokens of `sequence`, at least its prompt, and then
  /// `token`, with the same priority, deadline and maximum length, which it must not reach yet.
  /// Both share the blocks of what is computed; a shared block is copied before one of them writes
  /// to it. With states, a fork before the last computed token computes its tokens again. Only the
  /// last output of a fork is wanted. For n > 1, best_of and beams.
  SequenceId fork(SequenceId sequence, std::int64_t num_tokens, std::int64_t token);
  /// Ends a sequence at any time, also between plan() and advance(). Returns false if there is
  /// none.
  bool drop(SequenceId sequence);
  /// Sets how many drafts a decode step may verify: 0 at first. Forks inherit it.
  void set_max_drafts(SequenceId sequence, std::int64_t count);
  /// Preempts every sequence and forgets all prefixes, because the weights have changed or a pass
  /// has failed. A plan that was not advanced is abandoned.
  void recompute_all();

  /// Plans the next pass. Its runs are empty only if no sequence can be computed: there is none, or
  /// all are held.
  StepPlan plan(double now_s);
  /// Takes the results of a plan that has run. `tokens` has an entry for each run: the sampled
  /// tokens of one that samples (the accepted drafts and one more), otherwise none. None where a
  /// run samples holds the sequence: it may be forked and dropped, and is not computed again.
  /// Returns the sequences that reached their maximum length, which have ended.
  std::vector<SequenceId> advance(const StepPlan& plan,
                                  std::span<const std::vector<std::int64_t>> tokens);
  /// Returns the snapshots to take after the last advance(), also of sequences that it ended. They
  /// serve sequences that begin behind these blocks, while BlockPool::has_snapshot().
  const std::vector<StateSnapshot>& snapshots() const { return snapshots_; }

  bool is_empty() const { return sequences_.empty(); }
  std::int64_t num_running() const { return std::ssize(running_); }
  std::int64_t num_waiting() const { return std::ssize(waiting_); }
  bool contains(SequenceId sequence) const { return sequences_.contains(sequence); }
  /// Returns the prompt and the tokens so far.
  const std::vector<std::int64_t>& tokens(SequenceId sequence) const { return at(sequence).tokens; }
  /// Returns the blocks of positions 0 …, which plan(), advance(), fork() and drop() change.
  const std::vector<BlockId>& blocks(SequenceId sequence) const { return at(sequence).blocks; }
  const BlockPool& pool() const { return pool_; }
  const BlockPool& swap_pool() const { return swap_pool_; }

 private:
  /// The place of a sequence in the order of service. Held ones come last: anyone may preempt them.
  struct Order {
    bool is_held = false;
    std::int64_t priority = 0;
    SequenceId arrival = 0;
    SequenceId sequence = 0;
    auto operator<=>(const Order&) const = default;
  };
  struct Sequence {
    Order order;
    std::vector<std::int64_t> tokens;
    std::int64_t num_prompt_tokens = 0;
    std::int64_t max_tokens = 0;    ///< prompt and new tokens
    std::int64_t num_computed = 0;  ///< tokens whose keys and values are in the blocks
    std::int64_t max_drafts = 0;
    double deadline_s = 0;
    std::int64_t first_output = 0;
    bool finds_prefix = true;
    std::int64_t num_encoded = 0;
    std::int64_t branch = 0;  ///< tokens that it has in common with published blocks
    std::optional<BlockId> snapshot_of_answer = {};
    std::vector<BlockId> blocks = {};
    std::vector<BlockId> swapped = {};  ///< blocks of the swap memory, of a waiting sequence
    std::int64_t num_swapped = 0;       ///< tokens in them

    std::int64_t num_left() const { return std::ssize(tokens) - num_computed; }
    /// Returns how many of its next tokens have no output that is wanted; the last one's is no
    /// matter.
    std::int64_t num_silent() const;
    bool has_ended() const;
  };
  /// A plan that is being made.
  struct Step {
    StepPlan plan = {};
    std::int64_t tokens_left = 0;
    std::int64_t outputs_left = 0;
    std::int64_t num_decodes = 0;  ///< running sequences that are still to get their one token
    bool admits = true;            ///< false once a sequence had to wait: none passes it

    /// Returns how many tokens a prefill may take.
    std::int64_t tokens_free() const { return tokens_left - num_decodes; }
  };

  Sequence& at(SequenceId sequence);
  const Sequence& at(SequenceId sequence) const;
  /// Throws UserError if the request could never be computed.
  void check_fits(const Request& request) const;
  /// Releases the blocks of a sequence, the last one first.
  void release(Sequence& sequence);
  /// Copies the blocks of a sequence to the swap memory, if they have room there.
  void swap_out(Sequence& sequence, StepPlan& plan);
  /// Takes the swapped blocks behind the first `num_found` back to `sequence.blocks`.
  void swap_in(Sequence& sequence, std::size_t num_found, StepPlan& plan);
  /// Forgets swapped blocks.
  void release_swapped(Sequence& sequence);
  /// Takes its blocks and its place from a running sequence. It waits unless it is held.
  void preempt(Sequence& sequence, StepPlan& plan);
  /// Preempts the last running sequence in order, which has no run in the step yet.
  void preempt_last(Step& step);
  /// Returns how many blocks positions up to `end` and the encoder's text take.
  std::int64_t num_blocks(const Sequence& sequence, std::int64_t end) const;
  /// Returns how many blocks are lacking before positions up to `end` can be written.
  std::int64_t num_lacking(const Sequence& sequence, std::int64_t end) const;
  /// Makes positions from num_computed to `end` writable; the blocks are available.
  void extend(Sequence& sequence, std::int64_t end, StepPlan& plan);
  /// Retains the published blocks of the beginning of a sequence.
  void attach_prefix(Sequence& sequence);
  /// Returns how many of its next tokens a sequence may compute in the step.
  std::int64_t max_count(const Sequence& sequence, const Step& step) const;
  /// Starts a waiting sequence if it gets a place, blocks and tokens of the step.
  bool admit(Sequence& sequence, Step& step);
  /// Returns whether a sequence with its prefix attached has a place and blocks.
  bool has_room(const Sequence& sequence) const;
  /// Plans the next tokens of a running sequence, or preempts it for lack of blocks.
  void plan_run(Sequence& sequence, Step& step);
  /// Gives decode steps drafts from what is left of tokens and available blocks.
  void add_drafts(Step& step);
  /// Returns the first sequence after `last` in order that is running or, if the step admits them,
  /// waiting.
  std::optional<Order> next_after(const std::optional<Order>& last, const Step& step) const;
  /// Counts what has run as computed and publishes the blocks that it filled.
  void count_computed(Sequence& sequence, std::int64_t num_computed);
  /// Takes a snapshot of the states of a sequence if it ends at the end of a block behind which
  /// others may begin.
  void take_snapshot(Sequence& sequence);
  /// Notes that the snapshot behind a block is the one that was used last.
  void use_snapshot(BlockId block);
  void forget_snapshot(BlockId block);

  SchedulerOptions options_;
  BlockPool pool_, swap_pool_;
  std::map<SequenceId, Sequence> sequences_;
  std::set<Order> running_, waiting_;
  std::set<std::pair<double, SequenceId>> deadlines_;
  std::vector<StateSnapshot> snapshots_;
  std::list<BlockId> used_snapshots_;  ///< of all, by their last use
  SequenceId next_sequence_ = 0;
  bool has_plan_ = false;  ///< plan() was called and advance() was not
};

}  // namespace megatron
