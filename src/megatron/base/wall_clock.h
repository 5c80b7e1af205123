// The time of day, for files and messages. Durations are measured with monotonic_clock.h.
#pragma once

#include <chrono>

namespace megatron {

/// Returns seconds since 1970 (Unix time).
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace megatron
