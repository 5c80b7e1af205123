// What the process of a rank keeps from one start of a run for the next (--inprocess-restart): the
// groups that it communicates over, and the layers of the model. The next start connects the groups
// anew and loads weights and optimizer state from the checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "megatron/parallel/comm_slots.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {

class KeptModel {
 public:
  /// Returns the groups of this process, for every start's ProcessOptions::slots.
  const std::shared_ptr<CommSlots>& slots() const { return slots_; }
  /// Takes the model of a run that the failure of another rank has ended, possibly in the middle of
  /// a step; then `trainer` may only be destroyed. A model whose activations or weights are
  /// offloaded is not kept, because their store may have transfers under way.
  void keep(Trainer& trainer);
  /// Gives the kept model to a run with this plan, whose groups must be connected, and sets
  /// plan.rank to the rank that the layers refer to. Returns null, and drops what is kept, if the
  /// model is of another rank, world or device, of other settings, or of other pipeline stages,
  /// which may follow from measured times.
  std::unique_ptr<Model> take(TrainingPlan& plan);

 private:
  struct Kept {
    std::string identity;   ///< with `layout`: everything that the layers depend on
    PipelineLayout layout;  ///< of the model's stages
    Rank rank;              ///< the groups as the layers hold them
    std::unique_ptr<Model> model;
  };
  std::shared_ptr<CommSlots> slots_ = std::make_shared<CommSlots>();
  std::optional<Kept> kept_;
};

}  // namespace megatron
