// Heads of multi-token prediction as drafters (DeepSeek-V3, 2024, section 2.2). Behind the last
// token t(b) that the target has said, depth k reads the rows of depth k − 1 up to position b − 1
// with the tokens k positions later, and proposes token b + k. Each depth has caches of its own.
#include <ATen/ops/cat.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/inference/engine.h"

namespace megatron {
namespace {

/// The target's hidden rows of a sequence that depths are still to see. The last rows of depth k
/// were computed with drafts, so the rows of the last depths − 1 positions are seen again.
struct DepthRows {
  std::int64_t first = 0;  ///< position of the first row
  at::Tensor rows = {};    ///< [positions, 1, h]
  std::vector<SequenceCache> caches = {};
};

/// A sequence in the passes of a step.
struct DepthDraft {
  std::size_t place = 0;  ///< of its run
  DepthRows* text = nullptr;
  at::Tensor rows = {};                   ///< that the next depth reads
  SequenceSampler ahead;                  ///< which has counted the drafts
  std::vector<std::int64_t> tokens = {};  ///< from position text->first + 1, with the drafts
};

class MtpDrafter : public Drafter {
 public:
  explicit MtpDrafter(const ModelRunner& target)
      : model_(target), memories_(static_cast<std::size_t>(depths())) {}

  bool observes() const override { return true; }
  void observe(std::span<const ScheduledRun> runs, const at::Tensor& rows) override {
    std::int64_t row = 0;
    for (const ScheduledRun& run : runs) {
      const at::Tensor own = rows.narrow(0, std::exchange(row, row + run.count), run.count);
      DepthRows& text = texts_[run.sequence];
      if (text.caches.empty())
        for (const BlockMemory& memory : memories_) text.caches.emplace_back(memory.cache);
      const std::int64_t kept = run.first - text.first;
      // A sequence that is computed again may begin elsewhere.
      const bool goes_on = text.rows.defined() && kept >= 0 && kept <= text.rows.size(0);
      if (!goes_on) text.first = run.first;
      text.rows = goes_on ? at::cat({text.rows.narrow(0, 0, kept), own}) : own.clone();
    }
  }
  void forget(SequenceId sequence) override { texts_.erase(sequence); }

  std::vector<std::vector<DraftToken>> propose(std::span<const DraftingRun> runs,
                                               std::span<const BlockCopy> copies) override {
    const c10::InferenceMode no_gradients;
    for (BlockMemory& memory : memories_) memory.copy(copies);
    std::vector<std::vector<DraftToken>> result(runs.size());
    std::vector<DepthDraft> drafts = begin(runs);
    for (std::int64_t depth = 1; depth <= depths() && !drafts.empty(); ++depth) {
      const at::Tensor logits = run_depth(depth, drafts, runs);
      for (std::size_t i = 0; i < drafts.size(); ++i) {
        DepthDraft& draft = drafts[i];
        std::optional<DraftToken> next = draft.ahead.guess(
            row_of(logits, i), runs[draft.place].run.first + depth, /*samples=*/false);
        if (!next) continue;
        draft.tokens.push_back(next->id);
        draft.ahead.append(next->id);
        result[draft.place].push_back(*std::move(next));
      }
      std::erase_if(drafts, [&](const DepthDraft& draft) {
        const auto& own = result[draft.place];
        return std::ssize(own) < depth || depth >= runs[draft.place].run.num_drafts ||
               runs[draft.place].sampler.is_stop_token(own.back().id);
      });
    }
    for (const DraftingRun& one : runs)
      if (!result.empty() && one.run.num_drafts > 0) keep_last_rows(one.run);
    return result;
  }

 private:
  std::int64_t depths() const { return model_.config().mtp_num_layers; }

  std::vector<DepthDraft> begin(std::span<const DraftingRun> runs) {
    std::vector<DepthDraft> drafts;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const ScheduledRun& run = runs[i].run;
      const auto found = texts_.find(run.sequence);
      if (run.num_drafts == 0 || found == texts_.end()) continue;
      DepthRows& text = found->second;
      const auto tokens = runs[i].tokens.subspan(static_cast<std::size_t>(text.first + 1));
      drafts.push_back({.place = i,
                        .text = &text,
                        .rows = text.rows.narrow(0, 0, run.first - text.first),
                        .ahead = runs[i].sampler,
                        .tokens = {tokens.begin(), tokens.end()}});
    }
    return drafts;
  }

  /// Runs a depth over the rows of its drafts, whose rows become those that it returns. Returns the
  /// logits of the last row of each.
  at::Tensor run_depth(std::int64_t depth, std::vector<DepthDraft>& drafts,
                       std::span<const DraftingRun> runs) {
    std::vector<std::span<const std::int64_t>> inputs;
    std::vector<at::Tensor> previous;
    Caches caches;
    for (DepthDraft& draft : drafts) {
      inputs.push_back(std::span<const std::int64_t>(draft.tokens)
                           .subspan(static_cast<std::size_t>(depth - 1),
                                    static_cast<std::size_t>(draft.rows.size(0))));
      previous.push_back(draft.rows);
      SequenceCache& cache = draft.text->caches[static_cast<std::size_t>(depth - 1)];
      cache.blocks = runs[draft.place].blocks;
      cache.length = draft.text->first;
      caches.push_back(&cache);
    }
    Microbatch microbatch = microbatch_of(inputs);
    microbatch.tensors["previous_rows"] = at::cat(previous);
    at::Tensor rows;
    const at::Tensor logits = next_logits(
        model_, {.microbatch = microbatch, .caches = &caches, .depth = depth, .rows = &rows});
    std::int64_t row = 0;
    for (DepthDraft& draft : drafts) {
      const std::int64_t count = draft.rows.size(0);
      draft.rows = rows.narrow(0, std::exchange(row, row + count), count);
    }
    return logits;
  }

  /// Drops the rows that no depth has to see again.
  void keep_last_rows(const ScheduledRun& run) {
    const auto found = texts_.find(run.sequence);
    if (found == texts_.end()) return;
    DepthRows& text = found->second;
    const std::int64_t first = std::max(text.first, run.first - (depths() - 1));
    text.rows = text.rows.narrow(0, first - text.first, run.first - first).clone();
    text.first = first;
  }

  ModelRunner model_;
  std::vector<BlockMemory> memories_;  ///< of each depth
  std::map<SequenceId, DepthRows> texts_;
};

}  // namespace

std::unique_ptr<Drafter> make_mtp_drafter(const ModelRunner& target) {
  return std::make_unique<MtpDrafter>(target);
}

}  // namespace megatron
