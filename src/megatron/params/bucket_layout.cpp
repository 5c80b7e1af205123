#include "megatron/params/bucket_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/block_sums.h"
#include "megatron/base/division.h"

namespace megatron {
namespace {

/// Elements; Megatron's constant for NCCL's bus bandwidth.
constexpr std::int64_t kBusMultiple = 1 << 16;

/// Returns the elements that a parameter takes in a bucket.
std::int64_t padded_size(const Parameter& parameter) {
  return round_up(num_elements(parameter.local_shape()), kernels::kStateBlock);
}

/// Moves the parameters of a bucket so that none lies in the slices of two ranks. The largest ones
/// come first, each to the slice with the fewest elements. A slice has a multiple of
/// `slice_multiple` elements.
void keep_parameters_whole(BucketLayout& bucket, std::int64_t num_slices,
                           std::int64_t slice_multiple) {
  std::vector<std::size_t> order(bucket.parameters.size()), slice_of(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return padded_size(*bucket.parameters[i]); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(num_slices), 0);
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    slice_of[i] = static_cast<std::size_t>(least - load.begin());
    bucket.offsets[i] = *least;
    *least += padded_size(*bucket.parameters[i]);
  }
  const std::int64_t slice = round_up(std::ranges::max(load), slice_multiple);
  for (std::size_t i = 0; i < order.size(); ++i)
    bucket.offsets[i] += static_cast<std::int64_t>(slice_of[i]) * slice;
  bucket.size = slice * num_slices;
}

/// Collects buckets while parameters are added in backward order.
class BucketBuilder {
 public:
  /// Counts a parameter before any is added.
  void count(const Parameter& parameter, const BucketKind& kind) {
    if (kind.is_trained) num_elements_[kind.data_parallel] += padded_size(parameter);
  }

  void add(Parameter& parameter, const BucketKind& kind) {
    if (parameter.is_shared()) {
      Open alone;
      append(alone, parameter);
      close(alone, kind);
    } else {
      Open& open = open_[kind];
      append(open, parameter);
      const std::int64_t closing = closing_size(*kind.data_parallel);
      if (closing > 0 && open.bucket.size >= closing) close(open, kind);
    }
    ++place_;
    elements_in_unit_ += padded_size(parameter);
  }

  void close_all() {
    for (auto& [kind, open] : open_) close(open, kind);
  }

  /// Ends the unit of the parameters added last unless it has fewer than `unit_elements` elements.
  void end_unit(std::int64_t unit_elements) {
    if (elements_in_unit_ < unit_elements) return;
    close_all();
    ++unit_;
    elements_in_unit_ = 0;
  }

  std::vector<BucketLayout> take() {
    close_all();
    std::vector<BucketLayout> layouts;
    for (auto& [last, bucket] : closed_) layouts.push_back(std::move(bucket));
    return layouts;
  }

 private:
  struct Open {
    BucketLayout bucket;
    std::size_t last = 0;
  };

  void append(Open& open, Parameter& parameter) const {
    open.bucket.parameters.push_back(&parameter);
    open.bucket.offsets.push_back(open.bucket.size);
    open.bucket.size += padded_size(parameter);
    open.last = place_;
  }

  void close(Open& open, const BucketKind& kind) {
    if (open.bucket.parameters.empty()) return;
    BucketLayout bucket = std::exchange(open.bucket, {});
    const DataParallelOptions& options = *kind.data_parallel;
    const std::int64_t slices = options.all.size * kernels::kStateBlock;
    const std::int64_t multiple =
        options.pads_for_bus_bandwidth ? std::lcm(slices, kBusMultiple) : slices;
    if (options.keeps_parameters_whole && kind.is_trained &&
        !bucket.parameters.front()->is_shared())
      keep_parameters_whole(bucket, options.shard.size, multiple / options.shard.size);
    bucket.size = round_up(bucket.size, multiple);
    static_cast<BucketKind&>(bucket) = kind;
    bucket.unit = unit_;
    closed_.emplace(open.last, std::move(bucket));
  }

  /// Returns the number of elements at which a bucket closes; 0 means never.
  std::int64_t closing_size(const DataParallelOptions& options) {
    if (!options.num_buckets) return options.bucket_elements;
    return std::max<std::int64_t>(
        1, round_up(num_elements_[&options], *options.num_buckets) / *options.num_buckets);
  }

  /// Number of elements of the trained parameters of each group of ranks.
  std::map<const DataParallelOptions*, std::int64_t> num_elements_;
  std::map<BucketKind, Open> open_;
  std::map<std::size_t, BucketLayout> closed_;  ///< The key is the place of the last parameter.
  std::size_t place_ = 0, unit_ = 0;
  std::int64_t elements_in_unit_ = 0;
};

}  // namespace

std::vector<BucketLayout> bucket_layouts(const std::vector<Parameter*>& declared,
                                         const std::function<BucketKind(const Parameter&)>& kind_of,
                                         const std::unordered_set<const Parameter*>& unit_starts,
                                         std::int64_t unit_elements) {
  BucketBuilder builder;
  for (const Parameter* parameter : declared) builder.count(*parameter, kind_of(*parameter));
  for (std::size_t i = declared.size(); i-- > 0;) {
    builder.add(*declared[i], kind_of(*declared[i]));
    if (unit_starts.contains(declared[i])) builder.end_unit(unit_elements);
  }
  return builder.take();
}

}  // namespace megatron
