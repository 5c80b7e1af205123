// Where a rank's piece of a parameter lies in the global tensor. Initialisation, checkpoints,
// import and export derive from it; nothing re-derives a layout from a parameter's name.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

using Shape = std::vector<std::int64_t>;

/// A rectangular piece of a local tensor and its place in the global one. All three have the
/// tensor's number of dimensions.
struct TensorSlice {
  Shape global_offset, local_offset, shape;
  bool operator==(const TensorSlice&) const = default;
};

/// One of several parts that are split independently along the split dimension (q|k|v, gate|up,
/// Mamba's z|x|B|C|dt).
struct ShardBlock {
  std::int64_t size = 0;
  bool splittable = true;  ///< false: replicated when a repeat is shared by several ranks (k and v
                           ///< when there are fewer groups than ranks)
};

/// The layout of one parameter over one mesh axis. The split dimension holds `repeats` equal runs
/// of `blocks` (QKV: one run of q|k|v per query group). With at least as many repeats as ranks,
/// ranks take whole repeats; otherwise a repeat's splittable blocks are divided.
struct Sharding {
  Shape global_shape;  ///< true shape: vocabulary unpadded
  int split_dim = -1;  ///< −1: replicated on every rank
  std::int64_t repeats = 1;
  std::vector<ShardBlock> blocks;  ///< empty: one block of global_shape[split_dim] / repeats
  std::int64_t pad_multiple = 0;   ///< > 0: every rank holds the same multiple of it; rows past the
                                   ///< global end are local padding (vocabulary)

  static Sharding replicated(Shape shape) {
    return {.global_shape = std::move(shape), .blocks = {}};
  }
  static Sharding split(Shape shape, int dim, std::vector<ShardBlock> blocks = {},
                        std::int64_t repeats = 1) {
    return {.global_shape = std::move(shape),
            .split_dim = dim,
            .repeats = repeats,
            .blocks = std::move(blocks)};
  }
  static Sharding vocabulary(Shape shape, std::int64_t pad_multiple) {
    return {.global_shape = std::move(shape),
            .split_dim = 0,
            .blocks = {},
            .pad_multiple = pad_multiple};
  }

  /// Shape of the rank's tensor, padding included. Throws UserError when the axis does not divide a
  /// block.
  Shape local_shape(const Axis& axis) const;
  /// The pieces of the global tensor that the rank holds, ascending in local offset; local padding
  /// is in none of them.
  std::vector<TensorSlice> slices(const Axis& axis) const;
  /// slices() without what a lower rank of the axis holds too: over all ranks they tile the global
  /// tensor.
  std::vector<TensorSlice> owned_slices(const Axis& axis) const;
  /// The blocks of a split tensor that the ranks [k·num_sharers, (k + 1)·num_sharers) all hold,
  /// where num_sharers > 1.
  std::vector<TensorSlice> shared_slices(const Axis& axis) const;
  std::int64_t num_sharers(const Axis& axis) const {
    return repeats >= axis.size ? 1 : axis.size / repeats;
  }
};

/// Product of the extents.
std::int64_t num_elements(const Shape& shape);

}  // namespace megatron
