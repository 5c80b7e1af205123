// Builds the error message for a run that is out of memory: the size of the failed allocation, what
// this rank holds, which limit applies, and the cheapest flags that reduce memory use.
#pragma once

#include <c10/core/Device.h>

#include <new>
#include <string>

#include "megatron/base/memory_limits.h"
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

/// Returns the limits of this process, with those of the GPU if `device` is one.
MemoryLimits memory_limits(c10::Device device);

/// Returns "limits: data 19.07 GiB (ulimit -d; reserved 18.80 GiB, resident 18.10 GiB),
/// machine 23.41 GiB of which 10.02 GiB are available".
std::string limits_text(const MemoryLimits& limits);

/// Call it in a catch block around a run. Throws OutOfMemoryError with a full report when the
/// current exception reports an out-of-memory error, and rethrows the exception otherwise. `state`
/// may be incomplete.
[[noreturn]] void rethrow_with_memory_report(const TrainingPlan& plan, const TrainingState& state);

}  // namespace megatron
