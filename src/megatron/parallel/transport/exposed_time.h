// Adds calls to the counters: the call itself when it begins, and the time for which it blocks the
// caller.
#pragma once

#include <string>

#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/comm_counters.h"

namespace megatron {

/// Key of a call's row in the counters.
struct CommCountKey {
  std::string axis;
  CommOperation operation;
  const char* what;
  std::int64_t peer = 0;  ///< of a message or broadcast
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
  double begin_s_ = monotonic_seconds();
};

}  // namespace megatron
