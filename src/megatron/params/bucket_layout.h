// Assigns parameters to buckets and to offsets within a bucket. Main weights, gradients and
// optimizer state use the same offsets.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "megatron/params/data_parallel.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// What all parameters of a bucket have in common.
struct BucketKind {
  bool is_precise = false, is_trained = true, is_state = false;
  bool offloads_values = false;         ///< they lie in another memory (offloaded_values.h)
  c10::ScalarType dtype = c10::kFloat;  ///< of the values
  const DataParallelOptions* data_parallel = nullptr;  ///< the ranks that hold the same weights
  auto operator<=>(const BucketKind&) const = default;
};

/// The layout of one bucket of `size` elements. Parameter i starts at element offsets[i], a
/// multiple of kernels::kStateBlock.
struct BucketLayout : BucketKind {
  std::vector<Parameter*> parameters = {};
  std::vector<std::int64_t> offsets = {};
  std::int64_t size = 0;  ///< number of elements
  std::size_t unit = 0;   ///< unit of the model, counted in the order of backward
};

/// Lays out the parameters in the order in which backward finishes them, which is the reverse of
/// `declared`. Each bucket has parameters of one kind, and none spans two units of the model, of
/// which `unit_starts` are the first parameters; a unit of fewer than `unit_elements` elements is
/// joined with the next. A bucket closes when it reaches the size that its
/// DataParallelOptions ask for. Buckets are ordered by their last parameter, and each divides into
/// equal slices of whole blocks over data_parallel->all.
std::vector<BucketLayout> bucket_layouts(
    const std::vector<Parameter*>& declared,
    const std::function<BucketKind(const Parameter&)>& kind_of,
    const std::unordered_set<const Parameter*>& unit_starts = {}, std::int64_t unit_elements = 0);

}  // namespace megatron
