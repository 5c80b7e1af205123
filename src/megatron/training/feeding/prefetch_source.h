// Prefetches microbatches onto the model's device. A background thread takes them from another
// source; for a GPU it copies them from pinned memory on a separate stream, so that loading and
// copying overlap with the previous step's compute.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct PrefetchOptions {
  c10::Device device{c10::kCPU};
  bool in_thread = true;   ///< false: next() loads and copies synchronously
  std::int64_t depth = 8;  ///< maximum number of prefetched microbatches
};

/// Returns a source that yields the microbatches of `source` in the same order. An exception thrown
/// by `source` is rethrown by the next() call that would have returned that microbatch.
std::unique_ptr<MicrobatchSource> make_prefetch_source(std::unique_ptr<MicrobatchSource> source,
                                                       const PrefetchOptions& options);

}  // namespace megatron
