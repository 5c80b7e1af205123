// The layout of a parameter over the axes of the mesh. Initialisation, checkpoints, import and
// export derive from it; no code derives a layout from a parameter's name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

using Shape = std::vector<std::int64_t>;

/// A rectangular slice of a global tensor and its place in the tensor that holds it: a rank's local
/// tensor, or a tensor of its own in a file. All members have the tensor's number of dimensions.
struct TensorSlice {
  Shape global_offset, local_offset, shape;
  bool operator==(const TensorSlice&) const = default;
};

/// One of several parts that are sharded independently along the split dimension (q|k|v, gate|up,
/// Mamba's z|x|B|C|dt).
struct ShardBlock {
  std::int64_t size = 0;
  /// False when several ranks that share a repeat each hold the whole block (k and v with fewer
  /// groups than ranks).
  bool splittable = true;
  /// The equal units of a block that is not splittable, which the ranks that share a repeat divide.
  /// With fewer units than ranks several ranks hold one whole (groups of Mamba's B and C). All such
  /// blocks of a split have the same number.
  std::int64_t units = 1;
};

/// How the ranks of one mesh axis divide a tensor. The split dimension holds `repeats` equal runs
/// of `blocks`; QKV has one run of q|k|v per query group. With at least as many repeats as ranks,
/// each rank takes whole repeats. Otherwise the splittable blocks of a repeat are divided.
struct AxisSplit {
  int dim = -1;  ///< −1: every rank of the axis holds the whole tensor
  std::int64_t repeats = 1;
  std::vector<ShardBlock> blocks = {};  ///< empty means one block of the extent / repeats
  /// The rows of `dim` in the order of the ranks, each of which holds the same number; empty means
  /// ascending. Only for a dimension that is one splittable block (experts that were moved).
  std::vector<std::int64_t> order = {};
  /// If > 0, every rank holds the same multiple of it. Rows past the global end are local padding
  /// (vocabulary).
  std::int64_t pad_multiple = 0;
  /// With dim −1: each rank computes a part of the gradient, and the parts are summed over the
  /// axis. (Blocks that several ranks hold are always summed.)
  bool sums_gradients = false;

  /// Returns the number of ranks that share one repeat, or one unit of its blocks.
  std::int64_t num_sharers(const Axis& axis) const {
    std::int64_t units = repeats;
    for (const ShardBlock& block : blocks)
      if (!block.splittable) units = std::max(units, repeats * block.units);
    return units >= axis.size ? 1 : axis.size / units;
  }
};

/// The layout of one parameter: its global shape and one split per mesh axis, each of another
/// dimension. An expert weight [experts, out, in] is split by ep along 0 and by etp along 1 or 2.
/// The functions take the axes in the order of `splits`.
struct Sharding {
  Shape global_shape;  ///< global shape without vocabulary padding
  std::vector<AxisSplit> splits = {AxisSplit{}};

  /// Every rank of one axis holds the whole tensor.
  static Sharding replicated(Shape shape, bool sums_gradients = false) {
    return {.global_shape = std::move(shape), .splits = {{.sums_gradients = sums_gradients}}};
  }
  /// The ranks of one axis divide dimension `dim`.
  static Sharding split(Shape shape, int dim, std::vector<ShardBlock> blocks = {},
                        std::int64_t repeats = 1) {
    return {.global_shape = std::move(shape),
            .splits = {{.dim = dim, .repeats = repeats, .blocks = std::move(blocks)}}};
  }
  /// The ranks of one axis divide the rows, of which each holds the same multiple of
  /// `pad_multiple`.
  static Sharding vocabulary(Shape shape, std::int64_t pad_multiple) {
    return {.global_shape = std::move(shape), .splits = {{.dim = 0, .pad_multiple = pad_multiple}}};
  }

  /// Returns the shape of the rank's tensor, padding included. Throws UserError when an axis does
  /// not divide a block.
  Shape local_shape(std::span<const Axis> axes) const;
  /// Returns the slices of the global tensor that the rank holds, in ascending local offset. Local
  /// padding is in none of them.
  std::vector<TensorSlice> slices(std::span<const Axis> axes) const;
  /// Returns slices() without those that a lower rank of an axis also holds. Over all ranks they
  /// tile the global tensor.
  std::vector<TensorSlice> owned_slices(std::span<const Axis> axes) const;
  /// Returns the slices that the ranks [k·n, (k + 1)·n) of axis number `split` all hold, where n is
  /// num_sharers() > 1.
  std::vector<TensorSlice> shared_slices(std::span<const Axis> axes, std::size_t split) const;
};

/// Returns the product of the extents.
std::int64_t num_elements(const Shape& shape);

}  // namespace megatron
