// Proposes tokens that may follow texts. A pass of the target model computes the logits behind all
// of them at once, and what it would not have said itself is dropped (sampling/sampling.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/speculative_config.h"
#include "megatron/inference/sampling/sequence_sampler.h"
#include "megatron/inference/scheduler.h"
#include "megatron/ops/cache_memory.h"
#include "megatron/pipeline/model_runner.h"

namespace megatron {

/// What a step computes of a sequence, with what a drafter may read of it.
struct DraftingRun {
  ScheduledRun run;
  std::span<const std::int64_t> tokens;  ///< of the sequence; drafts follow the last of them
  const std::vector<BlockId>& blocks;    ///< of the sequence, with room for the drafts
  const SequenceSampler& sampler;
};

/// Proposes tokens for the runs of each step. This base class proposes none.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Returns up to run.num_drafts tokens for each run of a step, also of runs that take none: a
  /// drafter may have to see their tokens. `copies` are those of the plan. Every rank of the models
  /// calls it alike and gets the same.
  virtual std::vector<std::vector<DraftToken>> propose(std::span<const DraftingRun> runs,
                                                       std::span<const BlockCopy> /*copies*/) {
    return std::vector<std::vector<DraftToken>>(runs.size());
  }
  /// Returns whether observe() is to be called.
  virtual bool observes() const { return false; }
  /// Sees the target's hidden rows [tokens, 1, h] of the run of a sequence that may get drafts.
  virtual void observe(const ScheduledRun& /*run*/, const at::Tensor& /*rows*/) {}
  /// Forgets a sequence that has ended, or whose blocks are void. One that was preempted comes back
  /// with another ScheduledRun::first.
  virtual void forget(SequenceId /*sequence*/) {}
};

/// Memory of a model for the blocks that a scheduler gives out.
struct BlockMemory {
  std::shared_ptr<CacheMemory> cache = std::make_shared<CacheMemory>();
  CacheMemory swapped{{.device = at::kCPU}};  ///< blocks of preempted sequences

  /// Copies blocks as a plan says.
  void copy(std::span<const BlockCopy> copies);
};

/// Memory of a draft model for the target's blocks. A block that a sequence finds may come from one
/// that the draft model has not computed.
class DraftMemory {
 public:
  explicit DraftMemory(std::int64_t num_blocks)
      : memory_{std::make_shared<CacheMemory>(CacheMemoryOptions{.max_blocks = num_blocks})} {}

  const std::shared_ptr<CacheMemory>& cache() const { return memory_.cache; }
  /// Begins a step: copies blocks. What was at the positions that the runs write is void.
  void begin_step(std::span<const DraftingRun> runs, std::span<const BlockCopy> copies);
  /// Returns how many of the first positions of a sequence the draft model has computed.
  std::int64_t num_filled(std::span<const BlockId> blocks) const;
  /// Notes that it has computed the first `count` positions.
  void set_filled(std::span<const BlockId> blocks, std::int64_t count);

 private:
  BlockMemory memory_;
  /// By block: how many of its first positions are computed.
  std::map<BlockId, std::int64_t> filled_, swapped_filled_;
};

/// What speculation has done, and whether it pays.
struct SpeculationStats {
  struct Speed {
    std::int64_t num_tokens = 0;
    double seconds = 0;
  };
  std::int64_t num_drafts = 0, num_accepted = 0, num_runs = 0;  ///< runs: with drafts
  /// Of steps in which all texts go on: with drafts, and without, for which some steps have none.
  Speed with_drafts = {}, without = {};

  /// Counts a step that drew `num_drawn` tokens for each run, and the seconds of drafting and of
  /// the pass.
  void add(std::span<const ScheduledRun> runs, std::span<const std::int64_t> num_drawn,
           double draft_s, double pass_s);
  /// Returns how many times as fast texts are as without drafts; 0 if nothing tells.
  double speedup() const;
  /// Returns a sentence for the user.
  std::string summary() const;
};

struct SpeculationOptions {
  SpeculativeConfig config = {};
  const ModelRunner* draft_model = nullptr;  ///< for SpeculativeMethod::draft_model
  SpeculationStats* stats = nullptr;         ///< that steps are added to, if not null
};

/// Returns what the options ask for. The draft model must outlive it. `num_blocks`: of the
/// scheduler. UserError that names the flag when the method does not fit the target model.
std::unique_ptr<Drafter> make_drafter(const SpeculationOptions& options, const ModelRunner& target,
                                      std::int64_t num_blocks = kMaxBlocks);

/// Returns a drafter that runs another model. `samples`: SequenceSampler::guess().
std::unique_ptr<Drafter> make_model_drafter(const ModelRunner& model, bool samples,
                                            std::int64_t num_blocks);
/// Returns a drafter that runs the target's first `num_depths` heads of multi-token prediction. The
/// rank must hold the whole model.
std::unique_ptr<Drafter> make_mtp_drafter(const ModelRunner& target, std::int64_t num_depths,
                                          std::int64_t num_blocks);

/// Proposes what followed the last tokens where they were in the text before (Saxena, "Prompt
/// lookup decoding", 2023): after the longest match of up to `longest` tokens, the latest of
/// several, and none shorter than `shortest`. A match that overlaps what it proposes goes on in
/// circles.
std::vector<std::int64_t> look_up_ngram(std::span<const std::int64_t> tokens, std::int64_t count,
                                        std::int64_t shortest, std::int64_t longest);

}  // namespace megatron
