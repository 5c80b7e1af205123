// RMSNorm with one team for each row. The weight's gradient uses one thread for each column of a
// block of rows.
#pragma once

#include "kernels/cuda/team.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::cuda {

MEGATRON_ANY_TEAM
template <class X, class Y, class Team>
MEGATRON_HOST_DEVICE void rms_norm_row(const RmsNormArguments& a, std::int64_t row,
                                       const Team& team) {
  using C = Compute<X>;
  const X* x = static_cast<const X*>(a.x) + row * a.columns;
  const C* weight = static_cast<const C*>(a.weight);
  Y* y = static_cast<Y*>(a.y) + row * a.columns;
  const std::int64_t columns = a.columns;
  const C sum = team.template sum<C>([=](int thread) {
    C partial = 0;
    for (std::int64_t c = thread; c < columns; c += Team::size) partial += load(x[c]) * load(x[c]);
    return partial;
  });
  const C scale = C(1) / square_root(sum / static_cast<C>(columns) + static_cast<C>(a.epsilon)),
          shift = static_cast<C>(a.offset);
  C* rstd = static_cast<C*>(a.rstd) + row;
  team.each([=](int thread) {
    if (thread == 0) *rstd = scale;
    for (std::int64_t c = thread; c < columns; c += Team::size)
      store(y[c], load(x[c]) * scale * (weight[c] + shift));
  });
}

MEGATRON_ANY_TEAM
template <class X, class Y, class Team>
MEGATRON_HOST_DEVICE void rms_norm_backward_row(const RmsNormBackwardArguments& a, std::int64_t row,
                                                const Team& team) {
  using C = Compute<X>;
  const X* x = static_cast<const X*>(a.x) + row * a.columns;
  const Y* dy = static_cast<const Y*>(a.dy) + row * a.columns;
  const C* weight = static_cast<const C*>(a.weight);
  X* dx = static_cast<X*>(a.dx) + row * a.columns;
  const std::int64_t columns = a.columns;
  const C shift = static_cast<C>(a.offset), scale = static_cast<const C*>(a.rstd)[row];
  const C dot = team.template sum<C>([=](int thread) {
    C partial = 0;
    for (std::int64_t c = thread; c < columns; c += Team::size)
      partial += load(dy[c]) * (weight[c] + shift) * load(x[c]);
    return partial;
  });
  const C projection = dot * scale * scale / static_cast<C>(columns);
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < columns; c += Team::size)
      store(dx[c], scale * (load(dy[c]) * (weight[c] + shift) - load(x[c]) * projection));
  });
}

/// The weight's gradient adds rows in blocks of this many, and blocks in double, both in ascending
/// order.
inline constexpr std::int64_t kWeightBlockRows = 32;

MEGATRON_HOST_DEVICE inline std::int64_t weight_blocks(std::int64_t rows) {
  return (rows + kWeightBlockRows - 1) / kWeightBlockRows;
}

/// `partial` is a workspace of weight_blocks(rows)·columns numbers of the computing type.
struct WeightGradient {
  RmsNormBackwardArguments arguments;
  void* partial;
};

/// An item is a pair (block of rows, column).
template <class X, class Y>
MEGATRON_HOST_DEVICE void weight_gradient_partial(const WeightGradient& call, std::int64_t item) {
  using C = Compute<X>;
  const RmsNormBackwardArguments& a = call.arguments;
  const std::int64_t block = item / a.columns, column = item % a.columns;
  const std::int64_t begin = block * kWeightBlockRows,
                     end = begin + kWeightBlockRows < a.rows ? begin + kWeightBlockRows : a.rows;
  const X* x = static_cast<const X*>(a.x) + column;
  const Y* dy = static_cast<const Y*>(a.dy) + column;
  const C* rstd = static_cast<const C*>(a.rstd);
  C sum = 0;
  for (std::int64_t row = begin; row < end; ++row)
    sum += load(dy[row * a.columns]) * (load(x[row * a.columns]) * rstd[row]);
  static_cast<C*>(call.partial)[item] = sum;
}

template <class C>
MEGATRON_HOST_DEVICE void weight_gradient_total(const WeightGradient& call, std::int64_t column) {
  const RmsNormBackwardArguments& a = call.arguments;
  double total = 0;
  for (std::int64_t block = 0; block < weight_blocks(a.rows); ++block) {
    total += static_cast<double>(static_cast<const C*>(call.partial)[block * a.columns + column]);
  }
  static_cast<C*>(a.dweight)[column] = static_cast<C>(total);
}

}  // namespace megatron::kernels::cuda
