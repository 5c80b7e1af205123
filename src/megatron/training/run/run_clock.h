// The two clocks of a run, made when it starts: a monotonic clock for intervals, and the wall clock
// for printed times and for the end of a job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace megatron {

/// Tests replace these functions to control time.
struct RunClock {
  std::function<double()> monotonic_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  std::function<std::int64_t()> epoch_s = [] {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  double started_s = monotonic_s();  ///< start of the run on the monotonic clock

  double elapsed_s() const { return monotonic_s() - started_s; }
};

}  // namespace megatron
