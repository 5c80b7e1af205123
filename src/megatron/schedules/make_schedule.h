// The known schedules. Each is a pure function of a few numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

struct ScheduleRequest {
  std::string name = "1f1b";  ///< one of schedule_names()
  std::int64_t num_ranks = 1, num_chunks = 1, num_microbatches = 1;
  std::int64_t microbatch_group = 0;  ///< of interleaved: microbatches that pass a chunk before the
                                      ///< next chunk's turn; 0: num_ranks
};

/// gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe-v, combined-1f1b (1F1B or, with chunks,
/// interleaved, with so many more forwards first that every later forward is joined with the
/// backward behind it).
const std::vector<std::string>& schedule_names();
/// How the chunks of `name` lie, and how many there are where the schedule leaves no choice (zb-v,
/// dualpipe-v: 2; gpipe, 1f1b, zb-h1, zb-h2: 1), else 0.
ChunkOrder chunk_order_of(std::string_view name);
std::int64_t fixed_num_chunks(std::string_view name);
/// The fewest microbatches with which the schedule works: 1 for all of these, which do with few
/// what they can (interleaved: with any number, where Megatron refuses a last group shorter than
/// the pipeline).
std::int64_t smallest_num_microbatches(const ScheduleRequest& request);

/// The steps that compute, without messages (messages.h). UserError naming --pipeline-schedule and
/// what to change when the numbers do not fit.
Schedule make_schedule(const ScheduleRequest& request);
/// Every microbatch forward through every stage: evaluation.
Schedule make_forward_schedule(const ScheduleRequest& request);

}  // namespace megatron
