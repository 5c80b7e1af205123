// The row kernels, compiled once for each instruction set.
#include "kernels/cpu/row_kernels.h"

#include <cstdint>
#include <cstring>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/philox_vector.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// The ordinal of a row's sample and the index of the row's first element.
struct RowPlace {
  std::uint64_t first_element, ordinal;
};

inline RowPlace place_of(const RowCoordinates& c, std::int64_t row) {
  const std::int64_t i = row % c.inner, rest = row / c.inner, m = rest % c.middle,
                     outer = rest / c.middle,
                     place = c.positions != nullptr ? c.positions[outer] : outer;
  const std::uint64_t first = c.base + static_cast<std::uint64_t>(place) * c.outer_step +
                              static_cast<std::uint64_t>(m) * c.middle_step +
                              static_cast<std::uint64_t>(i) * c.inner_step;
  return {first, static_cast<std::uint64_t>(c.ordinals[c.sample_is_inner ? i : outer])};
}

/// Adds x without dropout. It makes no draws and needs no coordinates.
template <class X, class Out>
void add_rows(const DropoutArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<Out>;
  const X* x = static_cast<const X*>(a.x);
  const Out* residual = static_cast<const Out*>(a.residual);
  Out* out = static_cast<Out*>(a.out);
  if (residual == nullptr) {
    for (std::int64_t i = begin * a.columns; i < end * a.columns; ++i)
      store(out[i], static_cast<C>(load(x[i])));
    return;
  }
#pragma omp simd
  for (std::int64_t i = begin * a.columns; i < end * a.columns; ++i)
    store(out[i], load(residual[i]) + static_cast<C>(load(x[i])));
}

template <class X, class Out>
void dropout_rows(const DropoutArguments& a, std::int64_t begin, std::int64_t end) {
  if (a.rule.threshold == 0 && a.rule.scale == 1) return add_rows<X, Out>(a, begin, end);
  using C = Compute<Out>;
  const C scale = static_cast<C>(a.rule.scale);
  constexpr std::int64_t kDraws = 4 * kLanes;
  alignas(64) std::uint32_t draws[kDraws];
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.columns;
    const Out* residual =
        a.residual != nullptr ? static_cast<const Out*>(a.residual) + row * a.columns : nullptr;
    Out* out = static_cast<Out*>(a.out) + row * a.columns;
    const RowPlace place = place_of(a.coordinates, row);
    std::int64_t column = 0;
    while (column < a.columns) {
      const std::uint64_t element = place.first_element + static_cast<std::uint64_t>(column);
      draw_blocks(a.rule.key, element / 4, place.ordinal, draws);
      const int skip = static_cast<int>(element % 4);
      const std::int64_t count =
          a.columns - column < kDraws - skip ? a.columns - column : kDraws - skip;
      const std::uint32_t* mine = draws + skip;
      const auto kept = [&](std::int64_t i) {
        return mine[i] >= a.rule.threshold ? static_cast<C>(load(x[column + i])) * scale : C(0);
      };
      if (residual != nullptr) {
        for (std::int64_t i = 0; i < count; ++i)
          store(out[column + i], load(residual[column + i]) + kept(i));
      } else {
        for (std::int64_t i = 0; i < count; ++i) store(out[column + i], kept(i));
      }
      column += count;
    }
  }
}

inline std::int64_t place_of(const HeadLayout& l, std::int64_t position, std::int64_t sample,
                             std::int64_t head) {
  return position * l.position + sample * l.sample + head / l.group_heads * l.group +
         head % l.group_heads * l.head;
}

template <class T, bool interleaved>
void rotated_head(const T* in, T* to, const Compute<T>* cos, const Compute<T>* sin, Compute<T> sign,
                  std::int64_t half) {
  using C = Compute<T>;
  const std::int64_t step = interleaved ? 2 : 1, partner = interleaved ? 1 : half;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const C first = load(in[i * step]), second = load(in[i * step + partner]);
    store(to[i * step], first * cos[i] - sign * second * sin[i]);
    store(to[i * step + partner], second * cos[i] + sign * first * sin[i]);
  }
}

template <class T>
void heads_of_tokens(const HeadsArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<T>;
  const std::int64_t rotated = a.cos != nullptr ? a.rotary_dim : 0, half = rotated / 2;
  for (std::int64_t token = begin; token < end; ++token) {
    const std::int64_t position = token / a.samples, sample = token % a.samples,
                       table = rotated > 0 ? token / a.tokens_per_row * half : 0;
    const C *cos = static_cast<const C*>(a.cos) + table,
            *sin = static_cast<const C*>(a.sin) + table;
    for (std::int64_t head = 0; head < a.heads; ++head) {
      const T* in = static_cast<const T*>(a.from) + place_of(a.from_layout, position, sample, head);
      T* to = static_cast<T*>(a.to) + place_of(a.to_layout, position, sample, head);
      if (a.interleaved) {
        rotated_head<T, true>(in, to, cos, sin, static_cast<C>(a.sign), half);
      } else {
        rotated_head<T, false>(in, to, cos, sin, static_cast<C>(a.sign), half);
      }
      std::memcpy(to + rotated, in + rotated,
                  static_cast<std::size_t>(a.head_dim - rotated) * sizeof(T));
    }
  }
}

inline void dropout(const DropoutArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.x_type, a.out_type,
             [&](auto x, auto out) { dropout_rows<decltype(x), decltype(out)>(a, begin, end); });
}

inline void heads(const HeadsArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.type, [&](auto x) { heads_of_tokens<decltype(x)>(a, begin, end); });
}

RowKernels row_kernels() { return {dropout, heads}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(RowKernels, row_kernels)
