// What is said when memory runs out: what was asked for, what this rank holds, what bounds it, and
// what takes less.
#pragma once

#include <new>
#include <string>

#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/memory_breakdown.h"

namespace megatron {

/// Memory ran out; what() says how. Exit 1, as every std::bad_alloc.
class OutOfMemoryError : public std::bad_alloc {
 public:
  explicit OutOfMemoryError(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Whether these words of LibTorch's, or of a GPU's allocator, say that memory ran out.
bool is_out_of_memory_message(const std::string& message);

/// What bounds the memory of this process, in bytes; 0: nothing, or unknown.
struct MemoryLimits {
  double address_space = 0;  ///< RLIMIT_AS (ulimit -v)
  double data = 0;           ///< RLIMIT_DATA (ulimit -d)
  double cgroup = 0;         ///< the least memory.max of its control groups
  double machine = 0, available = 0;
  double device = 0;  ///< of the GPU
};

MemoryLimits memory_limits(c10::Device device);

/// "limits: address space 19.07 GiB (ulimit -v), machine 23.41 GiB of which 10.02 GiB are
/// available".
std::string limits_text(const MemoryLimits& limits);

/// Call in a handler of any exception of a run: throws OutOfMemoryError with all that is known if
/// it says that memory ran out, else throws it on.
[[noreturn]] void rethrow_with_memory_report(const Trainer& trainer);

}  // namespace megatron
