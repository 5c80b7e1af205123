// The norm kernels, compiled once for each instruction set.
#include "kernels/cpu/norm_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/lane_reduction.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

template <class X, class Y>
void layer_norm_rows(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<X>;
  const C shift = static_cast<C>(a.offset), count = static_cast<C>(a.columns);
  const C *weight = static_cast<const C*>(a.weight), *bias = static_cast<const C*>(a.bias);
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.columns;
    Y* y = static_cast<Y*>(a.y) + row * a.columns;
    const C mean = lane_sum<C>(a.columns, [x](std::int64_t c) { return load(x[c]); }) / count;
    const C squares = lane_sum<C>(
        a.columns, [x, mean](std::int64_t c) { return (load(x[c]) - mean) * (load(x[c]) - mean); });
    const C scale = C(1) / std::sqrt(squares / count + static_cast<C>(a.epsilon));
    static_cast<C*>(a.mean)[row] = mean;
    static_cast<C*>(a.rstd)[row] = scale;
#pragma omp simd
    for (std::int64_t c = 0; c < a.columns; ++c)
      store(y[c], (load(x[c]) - mean) * scale * (weight[c] + shift) + bias[c]);
  }
}

template <class X, class Y>
void rms_norm_rows(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<X>;
  const C shift = static_cast<C>(a.offset);
  const C* weight = static_cast<const C*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.columns;
    Y* y = static_cast<Y*>(a.y) + row * a.columns;
    const C squares =
        lane_sum<C>(a.columns, [x](std::int64_t c) { return load(x[c]) * load(x[c]); });
    const C scale =
        C(1) / std::sqrt(squares / static_cast<C>(a.columns) + static_cast<C>(a.epsilon));
    static_cast<C*>(a.rstd)[row] = scale;
#pragma omp simd
    for (std::int64_t c = 0; c < a.columns; ++c)
      store(y[c], load(x[c]) * scale * (weight[c] + shift));
  }
}

/// The operands of one row of the backward pass. `residual_grad` may be null.
template <class X, class Y>
struct NormBackwardRow {
  using C = Compute<X>;
  const Y* dy;
  const X *x, *residual_grad;
  const C* weight;
  X* dx;
  C *weight_sums, *bias_sums;
  std::int64_t columns;
  C shift, mean, scale;
};

template <bool passes, class X, class Y>
void layer_norm_backward_row(const NormBackwardRow<X, Y>& r) {
  using C = Compute<X>;
  const C mean = r.mean, scale = r.scale, shift = r.shift;
  const TwoSums<C> sums = two_lane_sums<C>(r.columns, [=, &r](std::int64_t c) {
    const C g = load(r.dy[c]) * (r.weight[c] + shift);
    return TwoSums<C>{g, g * ((load(r.x[c]) - mean) * scale)};
  });
  const C level = sums.first / static_cast<C>(r.columns),
          pull = sums.second / static_cast<C>(r.columns);
  const Y* dy = r.dy;
  const X *x = r.x, *residual_grad = r.residual_grad;
  const C* weight = r.weight;
  X* dx = r.dx;
  C *weight_sums = r.weight_sums, *bias_sums = r.bias_sums;
#pragma omp simd
  for (std::int64_t c = 0; c < r.columns; ++c) {
    const C d = load(dy[c]), normalised = (load(x[c]) - mean) * scale;
    C gradient = scale * (d * (weight[c] + shift) - level - normalised * pull);
    if constexpr (passes) gradient += load(residual_grad[c]);
    store(dx[c], gradient);
    weight_sums[c] += d * normalised;
    bias_sums[c] += d;
  }
}

template <bool passes, class X, class Y>
void rms_norm_backward_row(const NormBackwardRow<X, Y>& r) {
  using C = Compute<X>;
  const C scale = r.scale, shift = r.shift;
  const C dot = lane_sum<C>(r.columns, [=, &r](std::int64_t c) {
    return load(r.dy[c]) * (r.weight[c] + shift) * load(r.x[c]);
  });
  const C pull = dot * scale * scale / static_cast<C>(r.columns);
  const Y* dy = r.dy;
  const X *x = r.x, *residual_grad = r.residual_grad;
  const C* weight = r.weight;
  X* dx = r.dx;
  C* weight_sums = r.weight_sums;
#pragma omp simd
  for (std::int64_t c = 0; c < r.columns; ++c) {
    const C d = load(dy[c]);
    C gradient = scale * (d * (weight[c] + shift) - load(x[c]) * pull);
    if constexpr (passes) gradient += load(residual_grad[c]);
    store(dx[c], gradient);
    weight_sums[c] += d * (load(x[c]) * scale);
  }
}

template <class X, class Y>
void norm_backward_blocks(const NormBackwardArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<X>;
  for (std::int64_t block = begin; block < end; ++block) {
    C* weight_sums = static_cast<C*>(a.weight_blocks) + block * a.columns;
    C* bias_sums = a.mean != nullptr ? static_cast<C*>(a.bias_blocks) + block * a.columns : nullptr;
    std::fill_n(weight_sums, a.columns, C(0));
    if (bias_sums != nullptr) std::fill_n(bias_sums, a.columns, C(0));
    for (std::int64_t row = block * kRowsPerBlock;
         row < std::min(a.rows, (block + 1) * kRowsPerBlock); ++row) {
      const std::int64_t first = row * a.columns;
      const NormBackwardRow<X, Y> r{
          .dy = static_cast<const Y*>(a.dy) + first,
          .x = static_cast<const X*>(a.x) + first,
          .residual_grad =
              a.residual_grad != nullptr ? static_cast<const X*>(a.residual_grad) + first : nullptr,
          .weight = static_cast<const C*>(a.weight),
          .dx = static_cast<X*>(a.dx) + first,
          .weight_sums = weight_sums,
          .bias_sums = bias_sums,
          .columns = a.columns,
          .shift = static_cast<C>(a.offset),
          .mean = a.mean != nullptr ? static_cast<const C*>(a.mean)[row] : C(0),
          .scale = static_cast<const C*>(a.rstd)[row]};
      if (a.mean != nullptr) {
        r.residual_grad != nullptr ? layer_norm_backward_row<true>(r)
                                   : layer_norm_backward_row<false>(r);
      } else {
        r.residual_grad != nullptr ? rms_norm_backward_row<true>(r)
                                   : rms_norm_backward_row<false>(r);
      }
    }
  }
}

inline void norm(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.y_type, [&]<class X, class Y>(X, Y) {
    a.mean != nullptr ? layer_norm_rows<X, Y>(a, begin, end) : rms_norm_rows<X, Y>(a, begin, end);
  });
}

inline void norm_backward(const NormBackwardArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.y_type,
             [&]<class X, class Y>(X, Y) { norm_backward_blocks<X, Y>(a, begin, end); });
}

NormKernels norm_kernels() { return {norm, norm_backward}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(NormKernels, norm_kernels)
