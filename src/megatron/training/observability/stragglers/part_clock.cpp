#include "megatron/training/observability/stragglers/part_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace megatron {
namespace {

struct TimedPart {
  std::string_view timer;
  StepPart part;
};

constexpr std::array kTimedParts{TimedPart{"forward-compute", StepPart::forward},
                                 TimedPart{"backward-compute", StepPart::backward},
                                 TimedPart{"batch-generator", StepPart::data},
                                 TimedPart{"optimizer", StepPart::optimizer},
                                 TimedPart{"evaluate", StepPart::evaluation},
                                 TimedPart{"save-checkpoint", StepPart::checkpoint},
                                 TimedPart{"save-checkpoint-non-persistent", StepPart::checkpoint}};

std::optional<StepPart> part_of(std::string_view timer) {
  const auto* found = std::ranges::find(kTimedParts, timer, &TimedPart::timer);
  return found != kTimedParts.end() ? std::optional(found->part) : std::nullopt;
}

/// Returns whether a GPU executes the part after the host has queued it.
bool is_queued(StepPart part) {
  return part == StepPart::forward || part == StepPart::backward || part == StepPart::optimizer;
}

}  // namespace

void DeviceSpans::record(c10::Event& event) const {
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void DeviceSpans::begin(StepPart part) {
  if (num_used_ == spans_.size()) {
    const auto timed = [this] {
      return c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    };
    spans_.push_back({part, timed(), timed()});
  }
  spans_[num_used_].part = part;
  record(spans_[num_used_].begin);
}

void DeviceSpans::end() { record(spans_[num_used_++].end); }

void DeviceSpans::replace(OwnTimes& times) {
  for (std::size_t i = 0; i < num_used_; ++i) times.own(spans_[i].part) = 0;
  for (std::size_t i = 0; i < num_used_; ++i)
    times.own(spans_[i].part) += spans_[i].begin.elapsedTime(spans_[i].end) * 1e-3;
  num_used_ = 0;
}

PartClock::PartClock(Clocks clocks, std::unique_ptr<DeviceSpans> device)
    : clocks_(std::move(clocks)), device_(std::move(device)), step_begin_(read()) {}

void PartClock::on_start(std::string_view timer) {
  const auto part = part_of(timer);
  if (!part || depth_++ > 0) return;
  part_begin_ = read();
  if (device_ && is_queued(*part)) device_->begin(*part);
}

void PartClock::on_stop(std::string_view timer) {
  const auto part = part_of(timer);
  if (!part || --depth_ > 0) return;
  const Reading end = read();
  times_.own(*part) += (end.now_s - part_begin_.now_s) - (end.waited_s - part_begin_.waited_s);
  if (device_ && is_queued(*part)) device_->end();
}

OwnTimes PartClock::take_step() {
  const Reading end = read();
  OwnTimes times = std::exchange(times_, {});
  times.waited_s = end.waited_s - step_begin_.waited_s;
  if (device_) device_->replace(times);
  double other = end.now_s - step_begin_.now_s - times.waited_s;
  for (const double own : times.own_s) other -= own;
  times.own(StepPart::other) = std::max(other, 0.0);
  step_begin_ = end;
  return times;
}

}  // namespace megatron
