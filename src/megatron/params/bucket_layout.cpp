#include "megatron/params/bucket_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/block_sums.h"

namespace megatron {
namespace {

/// Elements; Megatron's constant for NCCL's bus bandwidth.
constexpr std::int64_t kBusMultiple = 1 << 16;

std::int64_t round_up(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

/// Returns the number of elements at which a bucket closes; 0 means never.
std::int64_t closing_size(const std::vector<Parameter*>& declared,
                          const DataParallelOptions& options) {
  if (!options.num_buckets) return options.bucket_elements;
  std::int64_t total = 0;
  for (const Parameter* parameter : declared)
    total += round_up(num_elements(parameter->local_shape()), kernels::kStateBlock);
  return std::max<std::int64_t>(1, round_up(total, *options.num_buckets) / *options.num_buckets);
}

}  // namespace

std::vector<BucketLayout> bucket_layouts(const std::vector<Parameter*>& declared,
                                         const DataParallelOptions& options,
                                         bool separates_precise) {
  const std::int64_t closing = closing_size(declared, options),
                     slices = options.all.size * kernels::kStateBlock;
  const std::int64_t multiple =
      options.pads_for_bus_bandwidth ? std::lcm(slices, kBusMultiple) : slices;
  // Keyed by the position of the last parameter in backward order.
  std::map<std::size_t, BucketLayout> closed;
  struct Open {
    BucketLayout bucket;
    std::size_t last = 0;
  } open[2];
  const auto close = [&](Open& it) {
    if (it.bucket.parameters.empty()) return;
    it.bucket.size = round_up(it.bucket.size, multiple);
    closed.emplace(it.last, std::exchange(it.bucket, {}));
  };
  for (std::size_t place = 0; place < declared.size(); ++place) {
    Parameter* parameter = declared[declared.size() - 1 - place];
    const bool is_precise = separates_precise && parameter->spec().tags.precise,
               is_shared = parameter->spec().sharing != StageSharing::none;
    Open alone;
    Open& chosen = is_shared ? alone : open[is_precise];
    BucketLayout& bucket = chosen.bucket;
    bucket.is_precise = is_precise;
    bucket.parameters.push_back(parameter);
    bucket.offsets.push_back(bucket.size);
    bucket.size += round_up(num_elements(parameter->local_shape()), kernels::kStateBlock);
    chosen.last = place;
    if (is_shared || (closing > 0 && bucket.size >= closing)) close(chosen);
  }
  for (Open& rest : open) close(rest);
  std::vector<BucketLayout> layouts;
  for (auto& [last, bucket] : closed) layouts.push_back(std::move(bucket));
  return layouts;
}

}  // namespace megatron
