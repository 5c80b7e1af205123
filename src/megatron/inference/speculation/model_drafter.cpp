// A second, smaller model that proposes what the target may say.
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "megatron/inference/engine.h"
#include "megatron/inference/input_ids.h"

namespace megatron {
namespace {

/// A sequence in the passes of a step.
struct Draft {
  std::size_t place = 0;  ///< of its run
  SequenceCache* cache = nullptr;
  std::vector<std::int64_t> input = {};       ///< the tokens that the next pass computes
  std::optional<SequenceSampler> ahead = {};  ///< which has counted the drafts
  bool is_done = false;
};

/// The draft model computes the tokens that the target computes, in the same step. Its caches have
/// the target's blocks, in memory of their own, so that prefixes, forks and preemption need nothing
/// more: where a block of the target holds tokens that will stay, so does the draft model's.
class ModelDrafter : public Drafter {
 public:
  ModelDrafter(const ModelRunner& model, bool samples, std::int64_t num_blocks)
      : model_(model), samples_(samples), memory_(num_blocks) {}
  std::vector<std::vector<DraftToken>> propose(std::span<const DraftingRun> runs,
                                               std::span<const BlockCopy> copies) override;
  void forget(SequenceId sequence) override { caches_.erase(sequence); }

 private:
  /// Returns the drafts to make, with the cache of each at the first token that it has to see.
  std::vector<Draft> begin(std::span<const DraftingRun> runs);

  ModelRunner model_;
  bool samples_;  ///< SequenceSampler::guess()
  DraftMemory memory_;
  std::map<SequenceId, SequenceCache> caches_;
};

std::vector<Draft> ModelDrafter::begin(std::span<const DraftingRun> runs) {
  std::vector<Draft> drafts;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ScheduledRun& run = runs[i].run;
    if (run.first + run.count > max_sequence_length(model_.config())) continue;
    const auto [found, is_new] = caches_.try_emplace(run.sequence, memory_.cache());
    SequenceCache& cache = found->second;
    // Drafts that were rejected are dropped. The last one, if it was accepted, has not been
    // computed.
    cache.length = is_new ? run.first : std::min(cache.length, run.first);
    cache.blocks = runs[i].blocks;
    if (memory_.num_filled(cache.blocks) < cache.length) {  // found behind a text that was too long
      caches_.erase(found);
      continue;
    }
    const std::int64_t end = run.first + run.count - run.num_drafts;
    const auto tokens = runs[i].tokens.subspan(static_cast<std::size_t>(cache.length),
                                               static_cast<std::size_t>(end - cache.length));
    drafts.push_back({.place = i, .cache = &cache, .input = {tokens.begin(), tokens.end()}});
  }
  return drafts;
}

std::vector<std::vector<DraftToken>> ModelDrafter::propose(std::span<const DraftingRun> runs,
                                                           std::span<const BlockCopy> copies) {
  const c10::InferenceMode no_gradients;
  memory_.begin_step(runs, copies);
  std::vector<std::vector<DraftToken>> result(runs.size());
  std::vector<Draft> drafts = begin(runs);
  while (!drafts.empty()) {
    std::vector<std::span<const std::int64_t>> inputs;
    Caches caches;
    std::vector<std::int64_t> num_logits;
    for (const Draft& draft : drafts) {
      inputs.emplace_back(draft.input);
      caches.push_back(draft.cache);
      num_logits.push_back(std::ssize(result[draft.place]) < runs[draft.place].run.num_drafts ? 1
                                                                                              : 0);
    }
    const at::Tensor logits = next_logits(model_, {.microbatch = model_.rows_of(inputs, caches),
                                                   .caches = &caches,
                                                   .num_logits = num_logits});
    for (const SequenceCache* cache : caches) memory_.set_filled(cache->blocks, cache->length);
    std::size_t row = 0;
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      Draft& draft = drafts[i];
      draft.is_done = num_logits[i] == 0;
      if (draft.is_done) continue;
      const DraftingRun& own = runs[draft.place];
      const SequenceSampler& sampler = draft.ahead ? *draft.ahead : own.sampler;
      std::optional<DraftToken> next =
          sampler.guess(row_of(logits, row++), draft.cache->length, samples_);
      // What follows the end of a text is of no use.
      draft.is_done = !next || sampler.is_stop_token(next->id);
      if (!next) continue;
      draft.input = {next->id};
      result[draft.place].push_back(*std::move(next));
      if (draft.is_done) continue;
      if (!draft.ahead) draft.ahead = own.sampler;
      draft.ahead->append(draft.input.front());
      // The last draft is computed only where it fills a block, which others may find.
      draft.is_done = std::ssize(result[draft.place]) == own.run.num_drafts &&
                      (draft.cache->length + 1) % kBlockPositions != 0;
    }
    std::erase_if(drafts, [](const Draft& draft) { return draft.is_done; });
  }
  return result;
}

}  // namespace

std::unique_ptr<Drafter> make_model_drafter(const ModelRunner& model, bool samples,
                                            std::int64_t num_blocks) {
  return std::make_unique<ModelDrafter>(model, samples, num_blocks);
}

}  // namespace megatron
