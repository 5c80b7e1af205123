#include "megatron/optimizer/sum_layout.h"

#include <algorithm>
#include <bit>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using kernels::kChunkElements;
using kernels::kStateBlock;

/// Position of a parameter in its bucket; each rank's slice of the bucket has `slice` elements.
struct BucketRange {
  std::int64_t offset, size, slice;
  std::int64_t rank;  ///< the slice of this rank
};

/// Calls run(begin, end, level, owner) in ascending order for the largest subtrees of a chunk's
/// blocks that lie in one slice. [begin, end) are elements of the parameter.
template <class Run>
void for_each_subtree(const BucketRange& bucket_range, std::int64_t chunk_begin, const Run& run) {
  const std::int64_t chunk_end = std::min(chunk_begin + kChunkElements, bucket_range.size);
  for (std::int64_t begin = chunk_begin; begin < chunk_end;) {
    const std::int64_t owner = (bucket_range.offset + begin) / bucket_range.slice,
                       cut = (owner + 1) * bucket_range.slice - bucket_range.offset;
    const bool ends = cut >= chunk_end;
    std::int64_t block = (begin - chunk_begin) / kStateBlock;
    const std::int64_t last =
        ends ? kChunkElements / kStateBlock
             : (cut - chunk_begin) / kStateBlock;  // blocks past the parameter's end are zero
    while (block < last && chunk_begin + block * kStateBlock < chunk_end) {
      std::int32_t level =
          block == 0 ? kernels::kChunkLevel : std::countr_zero(static_cast<std::uint64_t>(block));
      while (block + (std::int64_t{1} << level) > last) --level;
      const std::int64_t first = chunk_begin + block * kStateBlock;
      block += std::int64_t{1} << level;
      run(first, std::min(chunk_begin + block * kStateBlock, chunk_end), level, owner);
    }
    begin = ends ? chunk_end : cut;
  }
}

}  // namespace

SumLayout sum_layout(const ParamStore& store) {
  std::unordered_map<const Parameter*, BucketRange> bucket_ranges;
  for (const ParamBucket& bucket : store.buckets()) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i)
      bucket_ranges[bucket.parameters[i]] = {bucket.offsets[i],
                                             num_elements(bucket.parameters[i]->local_shape()),
                                             bucket.own_size, bucket.own_begin / bucket.own_size};
  }
  SumLayout layout;
  std::size_t piece = 0;
  for (const Parameter* parameter : store.parameters()) {
    if (!parameter->is_trained()) continue;
    const BucketRange& bucket_range = bucket_ranges.at(parameter);
    layout.first_slot.push_back(static_cast<std::int64_t>(layout.slots.size()));
    const bool is_mine =
        piece < store.pieces().size() && store.pieces()[piece].parameter == parameter;
    for (std::int64_t chunk = 0; chunk < bucket_range.size; chunk += kChunkElements) {
      for_each_subtree(
          bucket_range, chunk,
          [&](std::int64_t begin, std::int64_t end, std::int32_t level, std::int64_t owner) {
            const auto slot = static_cast<std::int64_t>(layout.slots.size());
            layout.slots.push_back(
                {level, end == std::min(chunk + kChunkElements, bucket_range.size)});
            if (is_mine && owner == bucket_range.rank)
              layout.ranges.push_back(
                  {piece, begin - store.pieces()[piece].first, end - begin, slot});
          });
    }
    if (is_mine) ++piece;
  }
  layout.first_slot.push_back(static_cast<std::int64_t>(layout.slots.size()));
  return layout;
}

SkippedElements skipped_elements(const Parameter& parameter) {
  const Shape local = parameter.local_shape();
  const std::int64_t size = num_elements(local);
  const std::vector<TensorSlice> owned = parameter.owned_slices();
  std::int64_t counted = 0;
  for (const TensorSlice& slice : owned) counted += num_elements(slice.shape);
  if (counted == size) return {};
  if (counted == 0) return {0, size};
  for (const TensorSlice& slice : owned) {
    MEGATRON_CHECK(std::equal(slice.shape.begin() + 1, slice.shape.end(), local.begin() + 1),
                   parameter.name(), ": elements that another rank counts are not whole rows");
  }
  const std::int64_t row = size / local[0];
  SkippedElements gap;
  const auto leave_out = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    MEGATRON_CHECK(gap.begin == gap.end, parameter.name(),
                   ": rows that another rank counts are not contiguous");
    gap = {begin * row, end * row};
  };
  std::int64_t rows = 0;
  for (const TensorSlice& slice : owned) {
    leave_out(rows, slice.local_offset[0]);
    rows = slice.local_offset[0] + slice.shape[0];
  }
  leave_out(rows, local[0]);
  return gap;
}

}  // namespace megatron
