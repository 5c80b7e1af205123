// Load-aware placement of experts: at an interval, experts move between the ranks of ep so that
// their measured loads are even. The mathematics does not change, and neither do checkpoints, which
// hold the experts in their own order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/nn/moe/expert_order.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

/// What a rank sends and receives when the experts of one layer move: for each place the rank that
/// gets its expert and the rank whose expert it gets.
struct ExpertMoves {
  std::vector<std::int64_t> to, from;
  Axis ep;
};

class ExpertPlacement {
 public:
  /// `plan` and `state` must outlive this.
  ExpertPlacement(const TrainingPlan& plan, TrainingState& state) : plan_(plan), state_(state) {}

  /// Adds the loads of a step, which are equal on all ranks.
  void observe(const std::vector<LayerRouting>& routing);
  /// Moves experts if --moe-expert-placement-interval says so after `iteration`, and begins a new
  /// measurement. Returns a line for the log when it was due. Collective over the world.
  std::optional<std::string> move_if_due(std::int64_t iteration);

 private:
  struct Layer {
    ExpertOrder order;
    std::vector<double> load;  ///< since the last time
  };

  /// Moves the experts of the layers in `moves` to their new order.
  void apply(const std::map<std::int64_t, ExpertMoves>& moves);

  const TrainingPlan& plan_;
  TrainingState& state_;
  std::map<std::int64_t, Layer> layers_;  ///< of the whole model
};

}  // namespace megatron
