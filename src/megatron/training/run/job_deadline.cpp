#include "megatron/training/run/job_deadline.h"

#include <algorithm>
#include <string_view>

#include "megatron/base/progress_bar.h"
#include "megatron/base/wall_clock.h"
#include "megatron/base/words.h"

namespace megatron {

JobDeadline::JobDeadline(const RunClock& clock, std::int64_t end_epoch_s)
    : clock_(clock),
      end_s_(clock.monotonic_s() + static_cast<double>(end_epoch_s - clock.epoch_s())) {}

void JobDeadline::record_iteration_time(double seconds) {
  longest_iteration_s_ = std::max(longest_iteration_s_, seconds);
}
void JobDeadline::record_save_time(double seconds) {
  longest_save_s_ = std::max(longest_save_s_, seconds);
}

SlurmDeadline slurm_deadline(const char* end_time, const RunClock& clock, bool saves) {
  if (end_time == nullptr || *end_time == '\0') return {};
  const auto end = exact_number<std::int64_t>(end_time);
  if (!end)
    return {.deadline = {},
            .line = std::string("WARNING: SLURM_JOB_END_TIME '") + end_time +
                    "' is ignored: it is not a number of seconds"};
  const std::int64_t left = *end - clock.epoch_s();
  if (left <= 0)
    return {.deadline = {},
            .line = "WARNING: SLURM_JOB_END_TIME is ignored: the end of the Slurm job, " +
                    local_time(*end) + ", has passed"};
  const std::string line = "the Slurm job ends at " + local_time(*end) + ", in " +
                           duration_text(static_cast<double>(left));
  if (!saves)
    return {.deadline = {}, .line = line + "; without --save, no checkpoint is written before it"};
  return {.deadline = JobDeadline(clock, *end),
          .line = line +
                  ": the run saves and stops before, when a further step and a save might not fit"};
}

}  // namespace megatron
