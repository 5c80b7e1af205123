// Assigns parameters to buckets and to offsets within a bucket. Main weights, gradients and
// optimizer state use the same offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/params/data_parallel.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// The layout of one bucket of `size` elements. Parameter i starts at element offsets[i], a
/// multiple of kernels::kStateBlock.
struct BucketLayout {
  std::vector<Parameter*> parameters = {};
  std::vector<std::int64_t> offsets = {};
  std::int64_t size = 0;
  bool is_precise = false;
};

/// Lays out the parameters in the order in which backward finishes them, which is the reverse of
/// `declared`. A bucket closes when it reaches the size that `options` ask for. With
/// `separates_precise`, parameters tagged precise get buckets of their own. Buckets are ordered by
/// their last parameter, and each divides into equal slices of whole blocks over options.all.
std::vector<BucketLayout> bucket_layouts(const std::vector<Parameter*>& declared,
                                         const DataParallelOptions& options,
                                         bool separates_precise);

}  // namespace megatron
