// The pipeline of a run: its stages, and the schedule for each number of microbatches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "megatron/config/pipeline_layout.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/search.h"

namespace megatron {

class PipelinePlan {
 public:
  struct Options {
    std::string schedule = "1f1b";      ///< A name from make_schedule.h, or auto.
    std::int64_t microbatch_group = 0;  ///< As in ScheduleRequest.
    bool overlaps_messages = true;
    /// Number of microbatches whose activations a rank may keep.
    std::optional<double> activation_limit = {};
    /// PipelinePass::num_partially_recomputed
    std::optional<std::int64_t> num_partially_recomputed = {};
    std::optional<CostModel> costs = {};  ///< Costs of the layout's stages, required for auto.
  };
  /// A plan for one rank that holds the whole model.
  PipelinePlan() : PipelinePlan(single_stage_layout(0), {}) {}
  PipelinePlan(PipelineLayout layout, Options options)
      : layout_(std::move(layout)), options_(std::move(options)) {}

  const PipelineLayout& layout() const { return layout_; }
  const Options& options() const { return options_; }
  /// Uses `schedule`, after adding messages, as the training schedule for its number of
  /// microbatches.
  void use(const Schedule& schedule);
  /// Returns the valid training schedule with messages, made once per number of microbatches.
  /// Throws UserError when there is none. Not thread-safe, because it caches schedules.
  const Schedule& training_schedule(std::int64_t num_microbatches) const;
  const Schedule& evaluation_schedule(std::int64_t num_microbatches) const;
  /// Returns a table of what each rank holds, and of the simulated cost of a step with the known
  /// times.
  std::string table(std::int64_t num_microbatches) const;

 private:
  ScheduleRequest request(std::int64_t num_microbatches) const;
  Schedule search(std::int64_t num_microbatches) const;
  Schedule checked_with_messages(const Schedule& schedule, bool with_backward) const;

  PipelineLayout layout_;
  Options options_;
  mutable std::map<std::int64_t, Schedule> training_, evaluation_;  ///< caches
};

}  // namespace megatron
