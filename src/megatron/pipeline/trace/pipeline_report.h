// Measured beside predicted: what the traced iterations of all ranks come to. Pure functions from
// records to numbers, text and tracks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/base/trace.h"
#include "megatron/pipeline/trace/rank_trace.h"
#include "megatron/schedules/schedule.h"

namespace megatron {

/// Seconds of one iteration, means over the traced ones.
struct StageTimeBreakdown {
  double forward_s = 0, backward_s = 0,
         weight_s = 0;  ///< backward_s: B, and W where it is no step of its own
  double busy_s = 0, waited_s = 0;
  double length_s =
      0;  ///< of the step: from the first begin to the last end of what any rank computes
  double predicted_busy_s = 0,
         predicted_s = 0;  ///< busy and length in the simulation with each stage's mean times

  double bubble() const { return length_s > 0 ? 1 - busy_s / length_s : 0; }
  double predicted_bubble() const {
    return predicted_s > 0 ? 1 - predicted_busy_s / predicted_s : 0;
  }
};

struct PipelineReport {
  std::string schedule;
  std::int64_t num_ranks = 1, num_chunks = 1,
               num_microbatches = 1;  ///< microbatches: of the last traced iteration
  std::int64_t first_iteration = 0, last_iteration = 0;
  double clock_accuracy_s = 0;  ///< ±, of the worst host
  double makespan_s = 0;        ///< of all ranks of the world: first begin to last end
  double predicted_makespan_s = 0;
  double total_bubble = 0,
         predicted_total_bubble = 0;  ///< 1 − Σ busy ÷ (p · makespan), of all pipelines
  std::vector<StageTimeBreakdown>
      stages;                             ///< of each pipeline rank, means over those with the same
  std::vector<StageTimeBreakdown> world;  ///< of each rank
};

/// The training schedule for a number of microbatches.
using ScheduleProvider = std::function<const Schedule&(std::int64_t num_microbatches)>;

/// `ranks` in the order of the world, each with the same iterations, at least one.
PipelineReport pipeline_report(const std::vector<RankTrace>& ranks,
                               const ScheduleProvider& schedule_of);

/// For people, without a newline at the end.
std::string pipeline_table(const PipelineReport& report);
/// For programs.
std::string summary_json(const PipelineReport& report, const std::vector<RankTrace>& ranks);
/// One process per rank: what it computes, with the parts of the iteration around, and what it
/// waits for.
std::vector<TraceTrack> pipeline_tracks(const std::vector<RankTrace>& ranks,
                                        const ScheduleProvider& schedule_of);

}  // namespace megatron
