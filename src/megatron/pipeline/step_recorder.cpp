#include "megatron/pipeline/step_recorder.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

double StepRecorder::now() const {
  if (!device_.is_cpu())
    c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  return monotonic_seconds();
}

void StepRecorder::begin(const ScheduleStep& step) {
  TimedStep& timed = open_.emplace_back(TimedStep{step, {}});
  const auto receive = std::ranges::find(receives_, step, &TimedStep::step);
  if (receive != receives_.end()) {
    timed.posted_s = receive->posted_s;
    receives_.erase(receive);
  }
  timed.span.begin_s = now();
}

void StepRecorder::end(const ScheduleStep& step) {
  const auto found = std::ranges::find(open_, step, &TimedStep::step);
  MEGATRON_CHECK(found != open_.end(), "a step of microbatch ", step.microbatch, " has not begun");
  found->span.end_s = now();
  done_.push_back(*found);
  open_.erase(found);
}

void StepRecorder::posted(const ScheduleStep& message) {
  const double at = monotonic_seconds();
  const bool is_receive =
      message.kind == StepKind::recv_forward || message.kind == StepKind::recv_backward;
  (is_receive ? receives_ : done_).push_back({message, {at, at}, at});
}

std::vector<TimedStep> StepRecorder::take() {
  open_.clear();
  receives_.clear();
  return std::exchange(done_, {});
}

}  // namespace megatron
