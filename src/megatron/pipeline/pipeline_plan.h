// What a run decides once about its pipeline: which stages there are, and the schedule for any
// number of microbatches.
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
    std::string schedule = "1f1b";      ///< make_schedule.h, or auto
    std::int64_t microbatch_group = 0;  ///< ScheduleRequest
    bool overlaps_messages = true;
    std::optional<double> activation_limit =
        {};                               ///< microbatches whose activations a rank may keep
    std::optional<CostModel> costs = {};  ///< of the layout's stages: what auto goes by
  };
  /// One rank with the whole model.
  PipelinePlan() : PipelinePlan(single_stage_layout(0), {}) {}
  PipelinePlan(PipelineLayout layout, Options options)
      : layout_(std::move(layout)), options_(std::move(options)) {}

  const PipelineLayout& layout() const { return layout_; }
  const Options& options() const { return options_; }
  /// Makes a schedule, without messages, the one of its number of microbatches.
  void use(const Schedule& schedule);
  /// Valid, with messages; made once for each number of microbatches. UserError when there is none.
  const Schedule& training_schedule(std::int64_t num_microbatches);
  const Schedule& evaluation_schedule(std::int64_t num_microbatches);
  /// For people: what each rank holds, and what the schedule of a step costs with the times at
  /// hand.
  std::string table(std::int64_t num_microbatches);

 private:
  ScheduleRequest request(std::int64_t num_microbatches) const;
  Schedule search(std::int64_t num_microbatches) const;
  Schedule checked_with_messages(const Schedule& schedule, bool with_backward) const;

  PipelineLayout layout_;
  Options options_;
  std::map<std::int64_t, Schedule> training_, evaluation_;
};

}  // namespace megatron
