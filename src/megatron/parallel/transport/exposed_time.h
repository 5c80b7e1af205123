// Adds calls to the counters: the call itself when it begins, and the time for which it blocks the
// caller.
#pragma once

#include <chrono>
#include <string>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

/// Key of a call's row in the counters.
struct CommCountKey {
  std::string axis;
  CommOperation operation;
  const char* what;
};

CommCountKey record_call(CommCounters& counters, const CommCall& call);

/// Adds the lifetime of the object to the exposed time of a call.
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
