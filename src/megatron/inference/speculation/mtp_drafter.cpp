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

/// A text whose rows wait for the depths of another keeps so many positions of them.
constexpr std::int64_t kMostWaiting = 4 * kBlockPositions;

/// The target's hidden rows of a sequence that depths are still to see. The last rows of depth k
/// were computed with drafts, so the rows of the last depths − 1 positions are seen again.
struct DepthRows {
  std::int64_t first = 0, end = 0;     ///< positions of the rows
  std::vector<at::Tensor> parts = {};  ///< their rows [positions, 1, h], in order
  std::vector<SequenceCache> caches = {};
};

/// A sequence in the passes of a step.
struct DepthDraft {
  std::size_t place = 0;  ///< of its run
  DepthRows* text = nullptr;
  at::Tensor rows = {};                   ///< that the next depth reads
  SequenceSampler ahead;                  ///< which has counted the drafts
  std::vector<std::int64_t> tokens = {};  ///< from position text->first + 1, with the drafts
  bool is_done = false;                   ///< no token may follow
};

class MtpDrafter : public Drafter {
 public:
  MtpDrafter(const ModelRunner& target, std::int64_t num_depths, std::int64_t num_blocks)
      : model_(target), num_depths_(num_depths) {
    for (std::int64_t i = 0; i < num_depths; ++i) memories_.emplace_back(num_blocks);
  }

  bool observes() const override { return true; }
  void observe(const ScheduledRun& run, const at::Tensor& rows) override {
    DepthRows& text = texts_[run.sequence];
    if (text.caches.empty())
      for (const DraftMemory& memory : memories_) text.caches.emplace_back(memory.cache());
    if (run.first < text.first || run.first > text.end) {  // computed again
      text.parts.clear();
      text.first = text.end = run.first;
    }
    while (text.end > run.first) {  // rejected drafts
      at::Tensor& last = text.parts.back();
      const std::int64_t dropped = std::min(text.end - run.first, last.size(0));
      text.end -= dropped;
      last = last.narrow(0, 0, last.size(0) - dropped);
      if (last.size(0) == 0) text.parts.pop_back();
    }
    text.parts.push_back(rows.clone());
    text.end += rows.size(0);
  }
  void forget(SequenceId sequence) override { texts_.erase(sequence); }

  std::vector<std::vector<DraftToken>> propose(std::span<const DraftingRun> runs,
                                               std::span<const BlockCopy> copies) override {
    const c10::InferenceMode no_gradients;
    for (DraftMemory& memory : memories_) memory.begin_step(runs, copies);
    std::vector<std::vector<DraftToken>> result(runs.size());
    std::vector<DepthDraft> drafts = begin(runs);
    std::vector<std::size_t> places;
    for (const DepthDraft& draft : drafts) places.push_back(draft.place);
    // Depths whose proposals are not wanted run, too, so that their caches have no gaps.
    for (std::int64_t depth = 1; depth <= num_depths_; ++depth) {
      std::erase_if(drafts, [&](const DepthDraft& draft) {
        return draft.is_done ||
               memory_of(depth).num_filled(runs[draft.place].blocks) < draft.text->first;
      });
      if (drafts.empty()) break;
      const at::Tensor logits = run_depth(depth, drafts, runs);
      for (std::size_t i = 0; i < drafts.size(); ++i) {
        DepthDraft& draft = drafts[i];
        const DraftingRun& one = runs[draft.place];
        const std::optional<DraftToken> next =
            draft.ahead.guess(row_of(logits, i), one.run.first + depth, /*samples=*/false);
        draft.is_done = !next;
        if (!next) continue;
        draft.tokens.push_back(next->id);
        draft.ahead.append(next->id);
        auto& own = result[draft.place];
        // What follows the end of a text is of no use.
        if (depth <= one.run.num_drafts && std::ssize(own) == depth - 1 &&
            (own.empty() || !one.sampler.is_stop_token(own.back().id)))
          own.push_back(*next);
      }
    }
    for (const std::size_t place : places) keep_last_rows(runs[place].run);
    return result;
  }

 private:
  DraftMemory& memory_of(std::int64_t depth) {
    return memories_[static_cast<std::size_t>(depth - 1)];
  }

  /// Returns the sequences that get drafts. One whose first blocks the depths have not computed
  /// keeps its rows until another sequence has had them computed.
  std::vector<DepthDraft> begin(std::span<const DraftingRun> runs) {
    std::vector<DepthDraft> drafts;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const ScheduledRun& run = runs[i].run;
      const auto found = texts_.find(run.sequence);
      if (run.num_drafts == 0 || found == texts_.end()) continue;
      DepthRows& text = found->second;
      const bool is_ahead = memory_of(1).num_filled(runs[i].blocks) < text.first;
      if (is_ahead && text.end - text.first > kMostWaiting) {
        text.parts.clear();
        text.first = text.end;
      }
      if (is_ahead || run.first <= text.first || run.first > text.end) continue;
      text.parts = {at::cat(text.parts)};
      const auto tokens = runs[i].tokens.subspan(static_cast<std::size_t>(text.first + 1));
      drafts.push_back({.place = i,
                        .text = &text,
                        .rows = text.parts.front().narrow(0, 0, run.first - text.first),
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
      const DraftingRun& one = runs[draft.place];
      memory_of(depth).set_filled(one.blocks, one.run.first);
      draft.rows = rows.narrow(0, std::exchange(row, row + count), count);
    }
    return logits;
  }

  /// Drops the rows that no depth has to see again.
  void keep_last_rows(const ScheduledRun& run) {
    DepthRows& text = texts_.at(run.sequence);
    const std::int64_t first = std::max(text.first, run.first - (num_depths_ - 1));
    text.parts = {text.parts.front().narrow(0, first - text.first, run.first - first).clone()};
    text.first = first;
    text.end = run.first;
  }

  ModelRunner model_;
  std::int64_t num_depths_;
  std::vector<DraftMemory> memories_;  ///< of each depth
  std::map<SequenceId, DepthRows> texts_;
};

}  // namespace

std::unique_ptr<Drafter> make_mtp_drafter(const ModelRunner& target, std::int64_t num_depths,
                                          std::int64_t num_blocks) {
  return std::make_unique<MtpDrafter>(target, num_depths, num_blocks);
}

}  // namespace megatron
