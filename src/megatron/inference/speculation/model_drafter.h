// A second, smaller model that proposes what the target may say.
#pragma once

#include <map>
#include <memory>

#include "megatron/inference/speculation/drafter.h"
#include "megatron/ops/sequence_cache.h"

namespace megatron {

/// The draft model computes the tokens that the target computes, in the same step. Its caches have
/// the target's blocks, in memory of their own, so that prefixes, forks and preemption need nothing
/// more: where a block of the target holds tokens that will stay, so does the draft model's.
class ModelDrafter : public Drafter {
 public:
  /// `model` must outlive the drafter. `samples`: SequenceSampler::guess().
  ModelDrafter(const ModelRunner& model, bool samples);
  std::vector<std::vector<DraftToken>> propose(std::span<const DraftingRun> runs,
                                               std::span<const BlockCopy> copies) override;
  void forget(SequenceId sequence) override { caches_.erase(sequence); }

 private:
  struct Draft;
  /// Returns the drafts to make, with the cache of each at the first token that it has to see.
  std::vector<Draft> begin(std::span<const DraftingRun> runs);

  ModelRunner model_;
  bool samples_;
  std::shared_ptr<CacheMemory> memory_ = std::make_shared<CacheMemory>();
  std::map<SequenceId, SequenceCache> caches_;
};

}  // namespace megatron
