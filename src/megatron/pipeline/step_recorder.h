// Records when this rank computes and when it waits while a schedule runs.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "megatron/base/monotonic_clock.h"
#include "megatron/pipeline/run_schedule.h"
#include "megatron/schedules/step_times.h"

namespace megatron {

/// Times steps on the host's clock. On a GPU it synchronizes the current stream at every begin and
/// end. The times are then exact, but the host cannot queue work ahead.
class StepRecorder : public StepListener {
 public:
  explicit StepRecorder(c10::Device device) : device_(device) {}

  void begin(const ScheduleStep& step) override;
  void end(const ScheduleStep& step) override;
  void posted(const ScheduleStep& message) override;
  void begin_wait(const ScheduleStep& receive) override { begin(receive); }
  void end_wait(const ScheduleStep& receive) override { end(receive); }

  /// Returns the steps recorded since the last call, in the order in which they ended.
  std::vector<TimedStep> take();

 private:
  double now() const;

  c10::Device device_;
  std::vector<TimedStep> open_, done_;
  std::vector<TimedStep> receives_;  ///< Posted receives that nothing has waited for yet.
};

}  // namespace megatron
