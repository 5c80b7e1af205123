// How calls reach the counters: once when they begin, and with every moment the caller stands still
// for them.
#pragma once

#include <chrono>
#include <string>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

/// A call's row among the counters.
struct CommCountKey {
  std::string axis;
  CommOperation operation;
  const char* what;
};

CommCountKey record_call(CommCounters& counters, const std::string& axis, const CommCall& call);

/// Adds the time until its end to what the call exposed.
class ScopedExposedTime {
 public:
  ScopedExposedTime(CommCounters& counters, CommCountKey call)
      : counters_(counters), call_(std::move(call)) {}
  ~ScopedExposedTime();
  ScopedExposedTime(const ScopedExposedTime&) = delete;
  ScopedExposedTime& operator=(const ScopedExposedTime&) = delete;

 private:
  CommCounters& counters_;
  CommCountKey call_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace megatron
