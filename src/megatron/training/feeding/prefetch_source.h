// Microbatches ahead of time and on the device of the model: a thread of its own takes them from
// another source, and for a GPU copies them from pinned memory on a stream of its own, while the
// step before computes.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "megatron/training/feeding/microbatch_source.h"

namespace megatron {

struct PrefetchOptions {
  c10::Device device{c10::kCPU};
  bool in_thread = true;   ///< false: the work happens inside next()
  std::int64_t depth = 8;  ///< microbatches made ahead
};

/// The microbatches of `source`, in its order. What `source` throws is thrown by next() at its
/// place of the order.
std::unique_ptr<MicrobatchSource> make_prefetch_source(std::unique_ptr<MicrobatchSource> source,
                                                       const PrefetchOptions& options);

}  // namespace megatron
