// Builds the error message for a run that is out of memory: the size of the failed allocation, what
// this rank holds, which limit applies, and the cheapest flags that reduce memory use.
#pragma once

#include <c10/core/Device.h>

#include <new>
#include <optional>
#include <string>

#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

/// Thrown when memory runs out; what() is the full report.
class OutOfMemoryError : public std::bad_alloc {
 public:
  explicit OutOfMemoryError(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Returns whether an exception message of LibTorch or of a GPU allocator reports an out-of-memory
/// error.
bool is_out_of_memory_message(const std::string& message);

/// Memory limits of this process and what it holds now, in bytes. A limit of 0 means that there is
/// none or that it is unknown.
struct MemoryLimits {
  double address_space = 0;                          ///< RLIMIT_AS (ulimit -v)
  double data = 0;                                   ///< RLIMIT_DATA (ulimit -d)
  double reserved_addresses = 0, reserved_data = 0;  ///< what counts against these two now
  double resident = 0;      ///< memory that the process has touched, with pages of files
  double thread_stack = 0;  ///< addresses that a new thread reserves
  double cgroup = 0;        ///< the smallest memory.max of its control groups
  double machine = 0, available = 0;
  double device = 0;       ///< total memory of the GPU
  double device_free = 0;  ///< what no process holds of it
};

MemoryLimits memory_limits(c10::Device device);

/// Returns the memory that the process may use under ulimit -v and ulimit -d, which also count what
/// it reserves and does not use: code that is not read, and stacks of threads. nullopt: they are
/// not set.
std::optional<double> usable_under_ulimits(const MemoryLimits& limits);

/// Returns "limits: data 19.07 GiB (ulimit -d; reserved 18.80 GiB, resident 18.10 GiB),
/// machine 23.41 GiB of which 10.02 GiB are available".
std::string limits_text(const MemoryLimits& limits);

/// Call it in a catch block around a run. Throws OutOfMemoryError with a full report when the
/// current exception reports an out-of-memory error, and rethrows the exception otherwise. `state`
/// may be incomplete.
[[noreturn]] void rethrow_with_memory_report(const TrainingPlan& plan, const TrainingState& state);

}  // namespace megatron
