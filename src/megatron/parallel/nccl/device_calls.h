// Finds out when calls on a GPU are complete, for the history of calls: the host only queues them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "megatron/base/suspend_aware_timer.h"
#include "megatron/parallel/failure/call_history.h"
#include "megatron/parallel/failure/host_status.h"

namespace megatron {

/// The calls of one rank that its stream waits for. Every method is thread-safe.
class DeviceCalls {
 public:
  /// `rank` is the rank in the world.
  DeviceCalls(std::shared_ptr<HostStatus> host_status, std::int64_t rank, c10::Device device)
      : host_status_(std::move(host_status)), rank_(rank), device_(device) {}

  /// Records that the current stream of the device now waits for the call with this number in the
  /// rank's history.
  void add(std::uint64_t number);
  /// Marks the calls that are complete by now, and returns the oldest one that is not. Must be
  /// called several times a second, so that ages do not count time in which the process was
  /// suspended.
  std::optional<DeviceCall> poll();

 private:
  struct Pending {
    std::uint64_t number;
    std::chrono::milliseconds since;  ///< on the timer
    c10::Event event;
  };

  const std::shared_ptr<HostStatus> host_status_;
  const std::int64_t rank_;
  const c10::Device device_;
  std::mutex mutex_;
  SuspendAwareTimer timer_;
  std::deque<Pending> pending_;
  std::vector<c10::Event> unused_;
};

}  // namespace megatron
