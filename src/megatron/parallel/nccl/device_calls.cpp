#include "megatron/parallel/nccl/device_calls.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace megatron {

void DeviceCalls::add(std::uint64_t number) {
  poll();
  host_status_->history().await(rank_, number);
  const std::lock_guard lock(mutex_);
  if (pending_.size() >= CallHistory::kNumCalls) {  // the history has forgotten the oldest
    unused_.push_back(std::move(pending_.front().event));
    pending_.pop_front();
  }
  if (unused_.empty()) unused_.emplace_back(device_.type());
  Pending call{number, timer_.elapsed(), std::move(unused_.back())};
  unused_.pop_back();
  call.event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  pending_.push_back(std::move(call));
}

std::optional<DeviceCall> DeviceCalls::poll() {
  const std::lock_guard lock(mutex_);
  while (!pending_.empty() && pending_.front().event.query()) {
    host_status_->history().leave(rank_, pending_.front().number);
    unused_.push_back(std::move(pending_.front().event));
    pending_.pop_front();
  }
  const std::chrono::milliseconds now = timer_.elapsed();
  if (pending_.empty()) return std::nullopt;
  return DeviceCall{.number = pending_.front().number, .age = now - pending_.front().since};
}

}  // namespace megatron
