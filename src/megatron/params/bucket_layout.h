// Which parameters share a bucket and where they lie in it. Main weights, gradients and optimizer
// states follow the same places.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/params/data_parallel.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// Parameter i starts at element offsets[i], a multiple of kernels::kStateBlock; `size` elements in
/// all.
struct BucketLayout {
  std::vector<Parameter*> parameters = {};
  std::vector<std::int64_t> offsets = {};
  std::int64_t size = 0;
  bool is_precise = false;
};

/// Parameters in the order in which backward finishes them, the reverse of `declared`, in buckets
/// that are closed as options ask, those tagged precise in buckets of their own when
/// `separates_precise`. Ordered by their last parameter; each divides into equal slices of whole
/// blocks over options.all.
std::vector<BucketLayout> bucket_layouts(const std::vector<Parameter*>& declared,
                                         const DataParallelOptions& options,
                                         bool separates_precise);

}  // namespace megatron
