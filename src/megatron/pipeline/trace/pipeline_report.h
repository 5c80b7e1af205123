// Compares the measured times of the traced iterations of all ranks with the simulation. Pure
// functions from records to numbers, text and trace tracks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/trace.h"
#include "megatron/pipeline/trace/context_report.h"
#include "megatron/pipeline/trace/rank_trace.h"
#include "megatron/schedules/schedule.h"

namespace megatron {

/// Seconds of one iteration, averaged over the traced iterations.
struct StageTimeBreakdown {
  /// backward_s is the time of B, and of W where W is not a step of its own.
  double forward_s = 0, backward_s = 0, weight_s = 0;
  double busy_s = 0, waited_s = 0;
  /// Length of the step: from the first begin to the last end of any rank's computation.
  double length_s = 0;
  /// Busy time and length in a simulation with each stage's mean times.
  double predicted_busy_s = 0, predicted_s = 0;

  double bubble() const { return length_s > 0 ? 1 - busy_s / length_s : 0; }
  double predicted_bubble() const {
    return predicted_s > 0 ? 1 - predicted_busy_s / predicted_s : 0;
  }
};

struct PipelineReport {
  std::string schedule;
  /// num_microbatches is that of the last traced iteration.
  std::int64_t num_ranks = 1, num_chunks = 1, num_microbatches = 1;
  std::int64_t first_iteration = 0, last_iteration = 0;
  double clock_accuracy_s = 0;  ///< Error bound of the clocks, of the worst host.
  double makespan_s = 0;        ///< First begin to last end, over all ranks of the world.
  double predicted_makespan_s = 0;
  /// 1 − Σ busy ÷ (p · makespan), over all pipelines.
  double total_bubble = 0, predicted_total_bubble = 0;
  std::vector<StageTimeBreakdown> stages;  ///< Per pipeline rank, averaged over all pipelines.
  std::vector<StageTimeBreakdown> world;   ///< Per rank of the world.
};

/// Returns the training schedule for a number of microbatches.
using ScheduleProvider = std::function<const Schedule&(std::int64_t num_microbatches)>;

/// Makes the report. `ranks` holds every rank of the world in order, all with the same iterations,
/// at least one.
PipelineReport pipeline_report(const std::vector<RankTrace>& ranks,
                               const ScheduleProvider& schedule_of);

/// Formats the report as a table without a newline at the end.
std::string pipeline_table(const PipelineReport& report);
/// Formats the report as JSON, with that on context parallelism where there is one.
std::string summary_json(const PipelineReport& report, const std::vector<RankTrace>& ranks,
                         const std::optional<ContextReport>& context = {});
/// Returns one trace process per rank, with its computation, the phases around it and its waits.
std::vector<TraceTrack> pipeline_tracks(const std::vector<RankTrace>& ranks,
                                        const ScheduleProvider& schedule_of);

}  // namespace megatron
