// The clock of time measurements.
#pragma once

#include <chrono>

namespace megatron {

/// Returns seconds of the host's monotonic clock, which all processes of a host share.
inline double monotonic_seconds() {  // CLOCK_MONOTONIC
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace megatron
