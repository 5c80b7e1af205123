// The time of day, for files and messages. Durations are measured with monotonic_clock.h.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

namespace megatron {

/// Returns seconds since 1970 (Unix time).
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Returns a Unix time as `2026-01-01 12:00:00` in the local time zone.
inline std::string local_time(std::time_t epoch_s) {
  std::tm parts{};
  localtime_r(&epoch_s, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}

}  // namespace megatron
