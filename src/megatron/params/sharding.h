// The layout of a parameter over the ranks of one mesh axis. Initialisation, checkpoints, import
// and export derive from it; no code derives a layout from a parameter's name.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/parallel/axis.h"
#include "megatron/params/tensor_slice.h"

namespace megatron {

/// One of several parts that are sharded independently along the split dimension (q|k|v, gate|up,
/// Mamba's z|x|B|C|dt).
struct ShardBlock {
  std::int64_t size = 0;
  /// False when several ranks that share a repeat each hold the whole block (k and v with fewer
  /// groups than ranks).
  bool splittable = true;
};

/// The layout of one parameter over one mesh axis. The split dimension holds `repeats` equal runs
/// of `blocks`; QKV has one run of q|k|v per query group. With at least as many repeats as ranks,
/// each rank takes whole repeats. Otherwise the splittable blocks of a repeat are divided.
struct Sharding {
  Shape global_shape;  ///< global shape without vocabulary padding
  int split_dim = -1;  ///< −1 means replicated on every rank
  std::int64_t repeats = 1;
  std::vector<ShardBlock> blocks;  ///< empty means one block of global_shape[split_dim] / repeats
  /// If > 0, every rank holds the same multiple of it. Rows past the global end are local padding
  /// (vocabulary).
  std::int64_t pad_multiple = 0;

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

  /// Returns the shape of the rank's tensor, padding included. Throws UserError when the axis does
  /// not divide a block.
  Shape local_shape(const Axis& axis) const;
  /// Returns the slices of the global tensor that the rank holds, in ascending local offset. Local
  /// padding is in none of them.
  std::vector<TensorSlice> slices(const Axis& axis) const;
  /// Returns slices() without those that a lower rank of the axis also holds. Over all ranks they
  /// tile the global tensor.
  std::vector<TensorSlice> owned_slices(const Axis& axis) const;
  /// Returns the blocks that the ranks [k·num_sharers, (k + 1)·num_sharers) all hold, where
  /// num_sharers > 1.
  std::vector<TensorSlice> shared_slices(const Axis& axis) const;
  /// Returns the number of ranks that share one repeat.
  std::int64_t num_sharers(const Axis& axis) const {
    return repeats >= axis.size ? 1 : axis.size / repeats;
  }
};

/// Returns the product of the extents.
std::int64_t num_elements(const Shape& shape);

}  // namespace megatron
