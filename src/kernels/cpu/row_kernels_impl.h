// The row kernels' one implementation, compiled once per instruction set inside the namespace MEGATRON_KERNEL_ISA.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/philox_lanes.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// The sample's ordinal and the first element's index of a row.
struct RowPlace {
  std::uint64_t first_element, ordinal;
};

inline RowPlace place_of(const RowCoordinates& c, std::int64_t row) {
  const std::int64_t i = row % c.inner, rest = row / c.inner, m = rest % c.middle, outer = rest / c.middle;
  const std::uint64_t first = c.base + static_cast<std::uint64_t>(outer) * c.outer_step + static_cast<std::uint64_t>(m) * c.middle_step +
                              static_cast<std::uint64_t>(i) * c.inner_step;
  return {first, static_cast<std::uint64_t>(c.ordinals[c.sample_is_inner ? i : outer])};
}

template <class X, class Out>
void dropout_rows(const DropoutArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<Out>;
  const C scale = static_cast<C>(a.rule.scale);
  constexpr std::int64_t kDraws = 4 * kLanes;
  alignas(64) std::uint32_t draws[kDraws];
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.columns;
    const Out* residual = a.residual != nullptr ? static_cast<const Out*>(a.residual) + row * a.columns : nullptr;
    Out* out = static_cast<Out*>(a.out) + row * a.columns;
    const RowPlace place = place_of(a.coordinates, row);
    std::int64_t column = 0;
    while (column < a.columns) {
      const std::uint64_t element = place.first_element + static_cast<std::uint64_t>(column);
      draw_blocks(a.rule.key, element / 4, place.ordinal, draws);
      const int skip = static_cast<int>(element % 4);
      const std::int64_t count = a.columns - column < kDraws - skip ? a.columns - column : kDraws - skip;
      const std::uint32_t* mine = draws + skip;
      const auto kept = [&](std::int64_t i) { return mine[i] >= a.rule.threshold ? static_cast<C>(load(x[column + i])) * scale : C(0); };
      if (residual != nullptr) {
        for (std::int64_t i = 0; i < count; ++i) store(out[column + i], load(residual[column + i]) + kept(i));
      } else {
        for (std::int64_t i = 0; i < count; ++i) store(out[column + i], kept(i));
      }
      column += count;
    }
  }
}

/// Σ term(c) over columns in sixteen lanes, folded pairwise.
template <class C, class Term>
C lane_sum(std::int64_t columns, Term term) {
  C lanes[kLanes] = {};
  std::int64_t column = 0;
  for (; column + kLanes <= columns; column += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(column + lane);
  }
  for (int lane = 0; column + lane < columns; ++lane) lanes[lane] += term(column + lane);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class X, class Y>
void rms_norm_rows(const RmsNormArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<X>;
  const C shift = static_cast<C>(a.offset);
  const C* weight = static_cast<const C*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.columns;
    Y* y = static_cast<Y*>(a.y) + row * a.columns;
    const C sum = lane_sum<C>(a.columns, [x](std::int64_t c) { return load(x[c]) * load(x[c]); });
    const C scale = C(1) / std::sqrt(sum / static_cast<C>(a.columns) + static_cast<C>(a.epsilon));
    static_cast<C*>(a.rstd)[row] = scale;
    for (std::int64_t c = 0; c < a.columns; ++c) store(y[c], load(x[c]) * scale * (weight[c] + shift));
  }
}

template <class X, class Y>
void rms_norm_backward_input_rows(const RmsNormBackwardArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<X>;
  const C shift = static_cast<C>(a.offset);
  const C* weight = static_cast<const C*>(a.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.columns;
    const Y* dy = static_cast<const Y*>(a.dy) + row * a.columns;
    X* dx = static_cast<X*>(a.dx) + row * a.columns;
    const C scale = static_cast<const C*>(a.rstd)[row];
    const C dot = lane_sum<C>(a.columns, [=](std::int64_t c) { return load(dy[c]) * (weight[c] + shift) * load(x[c]); });
    const C pull = dot * scale * scale / static_cast<C>(a.columns);
    for (std::int64_t c = 0; c < a.columns; ++c) store(dx[c], scale * (load(dy[c]) * (weight[c] + shift) - load(x[c]) * pull));
  }
}

/// Rows are summed in blocks, blocks in double: thousands of rows (every head of every token under q and k norms) keep their last digits.
template <class X, class Y>
void rms_norm_backward_weight_columns(const RmsNormBackwardArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<X>;
  constexpr std::int64_t kColumns = 64, kRows = 32;
  const C* rstd = static_cast<const C*>(a.rstd);
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t count = end - first < kColumns ? end - first : kColumns;
    double total[kColumns] = {};
    for (std::int64_t block = 0; block < a.rows; block += kRows) {
      C partial[kColumns] = {};
      for (std::int64_t row = block; row < a.rows && row < block + kRows; ++row) {
        const X* x = static_cast<const X*>(a.x) + row * a.columns + first;
        const Y* dy = static_cast<const Y*>(a.dy) + row * a.columns + first;
        for (std::int64_t c = 0; c < count; ++c) partial[c] += load(dy[c]) * (load(x[c]) * rstd[row]);
      }
      for (std::int64_t c = 0; c < count; ++c) total[c] += static_cast<double>(partial[c]);
    }
    for (std::int64_t c = 0; c < count; ++c) static_cast<C*>(a.dweight)[first + c] = static_cast<C>(total[c]);
  }
}

template <class T>
void rotary_tokens(const RotaryArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<T>;
  const std::int64_t half = a.rotary_dim / 2;
  const C sign = static_cast<C>(a.sign);
  const std::int64_t first_step = a.interleaved ? 2 : 1, partner = a.interleaved ? 1 : half;
  for (std::int64_t token = begin; token < end; ++token) {
    const C* cos = static_cast<const C*>(a.cos) + token / a.tokens_per_row * half;
    const C* sin = static_cast<const C*>(a.sin) + token / a.tokens_per_row * half;
    for (std::int64_t head = 0; head < a.heads; ++head) {
      const T* in = static_cast<const T*>(a.x) + token * a.token_stride + head * a.head_stride;
      T* to = static_cast<T*>(a.out) + (token * a.heads + head) * a.head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        const C first = load(in[i * first_step]), second = load(in[i * first_step + partner]);
        store(to[i * first_step], first * cos[i] - sign * second * sin[i]);
        store(to[i * first_step + partner], second * cos[i] + sign * first * sin[i]);
      }
      for (std::int64_t i = a.rotary_dim; i < a.head_dim; ++i) to[i] = in[i];
    }
  }
}

inline void dropout(const DropoutArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.out_type, [&](auto x, auto out) { dropout_rows<decltype(x), decltype(out)>(a, begin, end); });
}

inline void rms_norm(const RmsNormArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.y_type, [&](auto x, auto y) { rms_norm_rows<decltype(x), decltype(y)>(a, begin, end); });
}

inline void rms_norm_backward_input(const RmsNormBackwardArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.y_type, [&](auto x, auto y) { rms_norm_backward_input_rows<decltype(x), decltype(y)>(a, begin, end); });
}

inline void rms_norm_backward_weight(const RmsNormBackwardArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.y_type, [&](auto x, auto y) { rms_norm_backward_weight_columns<decltype(x), decltype(y)>(a, begin, end); });
}

inline void rotary(const RotaryArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.type, [&](auto x) { rotary_tokens<decltype(x)>(a, begin, end); });
}

RowKernels table() { return {dropout, rms_norm, rms_norm_backward_input, rms_norm_backward_weight, rotary}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
