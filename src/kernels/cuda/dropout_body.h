// Dropout of one Philox block: four neighbouring elements of a row, with one draw for each.
#pragma once

#include "kernels/cuda/philox.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::cuda {

/// The ordinal of a row's sample and the index of the row's first element.
struct RowPlace {
  std::uint64_t first_element, ordinal;
};

MEGATRON_HOST_DEVICE inline RowPlace place_of(const RowCoordinates& c, std::int64_t row) {
  const std::int64_t i = row % c.inner, rest = row / c.inner, m = rest % c.middle,
                     outer = rest / c.middle,
                     place = c.positions != nullptr ? c.positions[outer] : outer;
  const std::uint64_t first = c.base + static_cast<std::uint64_t>(place) * c.outer_step +
                              static_cast<std::uint64_t>(m) * c.middle_step +
                              static_cast<std::uint64_t>(i) * c.inner_step;
  return {first, static_cast<std::uint64_t>(c.ordinals[c.sample_is_inner ? i : outer])};
}

/// Number of Philox blocks that a row may touch. Its first element need not be a multiple of four.
MEGATRON_HOST_DEVICE inline std::int64_t blocks_per_row(std::int64_t columns) {
  return (columns + 6) / 4;
}

/// Processes item `item` of rows·blocks_per_row.
template <class X, class Out>
MEGATRON_HOST_DEVICE void dropout_item(const DropoutArguments& a, std::int64_t item) {
  using C = Compute<Out>;
  const std::int64_t per_row = blocks_per_row(a.columns), row = item / per_row;
  const RowPlace place = place_of(a.coordinates, row);
  const std::uint64_t block = place.first_element / 4 + static_cast<std::uint64_t>(item % per_row);
  const std::int64_t before = static_cast<std::int64_t>(
      // This is the column of the block's first lane, −3 or more.
      4 * block - place.first_element);
  if (before >= a.columns) return;
  const PhiloxWords draws = philox_block(a.rule.key, block, place.ordinal);
  const C scale = static_cast<C>(a.rule.scale);
  const X* x = static_cast<const X*>(a.x) + row * a.columns;
  const Out* residual =
      a.residual != nullptr ? static_cast<const Out*>(a.residual) + row * a.columns : nullptr;
  Out* out = static_cast<Out*>(a.out) + row * a.columns;
  for (int lane = 0; lane < 4; ++lane) {
    const std::int64_t column = before + lane;
    if (column < 0 || column >= a.columns) continue;
    const C kept =
        draws.lane[lane] >= a.rule.threshold ? static_cast<C>(load(x[column])) * scale : C(0);
    store(out[column], residual != nullptr ? load(residual[column]) + kept : kept);
  }
}

}  // namespace megatron::kernels::cuda
