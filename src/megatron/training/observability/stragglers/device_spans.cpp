#include "megatron/training/observability/stragglers/device_spans.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace megatron {

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

}  // namespace megatron
