// Makes the named schedules. Each is a pure function of a few numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

struct ScheduleRequest {
  std::string name = "1f1b";  ///< One of schedule_names().
  std::int64_t num_ranks = 1, num_chunks = 1, num_microbatches = 1;
  /// For interleaved: microbatches that pass one chunk before the next chunk runs; 0: num_ranks.
  std::int64_t microbatch_group = 0;
};

/// Returns gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe-v and combined-1f1b. The last is
/// 1F1B or, with chunks, interleaved, with enough more warm-up forwards that every later forward is
/// joined with the backward after it.
const std::vector<std::string>& schedule_names();
/// Returns the chunk order of the named schedule.
ChunkOrder chunk_order_of(std::string_view name);
/// Returns the number of chunks when the schedule fixes it (zb-v, dualpipe-v: 2; gpipe, 1f1b,
/// zb-h1, zb-h2: 1), else 0.
std::int64_t fixed_num_chunks(std::string_view name);
/// Returns the fewest microbatches with which the schedule works. It is 1 for all of them. Unlike
/// Megatron, interleaved also accepts a last group shorter than the pipeline.
std::int64_t smallest_num_microbatches(const ScheduleRequest& request);

/// Returns the computing steps, without messages (messages.h). Throws UserError, which names
/// --pipeline-schedule and what to change, when the numbers do not fit.
Schedule make_schedule(const ScheduleRequest& request);
/// Returns a schedule for evaluation, which runs every microbatch forward through every stage.
Schedule make_forward_schedule(const ScheduleRequest& request);

}  // namespace megatron
