// The kernels of the gated norm, compiled once for each instruction set.
#include "kernels/cpu/gated_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"
#include "kernels/cpu/vectors.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// A group of columns of one row.
template <class T>
class NormGroup {
 public:
  using C = Compute<T>;
  using Vec = Vectors<C>;
  using V = typename Vec::V;

  NormGroup(const GatedNormArguments& args, std::int64_t row, std::int64_t first)
      : a(args),
        x_(rows_of(a.x, row) + first),
        z_(rows_of(a.z, row) + first),
        weight_(static_cast<const C*>(a.weight) + (a.shares_weight ? 0 : first)) {}

  /// What a vector of columns, of which `count` exist, has in forward.
  struct Columns {
    std::int64_t count;
    V x, weight;
    ValueAndDerivative<V> gate;
    V h;  ///< what is normalised
  };
  Columns at(std::int64_t c) const {
    const std::int64_t count = a.group_size - c;
    Columns v{.count = count,
              .x = Vec::load(x_ + c, count),
              .weight = Vec::load(weight_ + c, count) + Vec::splat(static_cast<C>(a.offset)),
              .gate = Silu::at(Vec::load(z_ + c, count)),
              .h = {}};
    v.h = a.norm_before_gate ? v.x : v.x * v.gate.value;
    return v;
  }

  /// Returns 1 / √(mean h² + ε).
  C rstd() const {
    V squares = Vec::splat(0);
    for (std::int64_t c = 0; c < a.group_size; c += kLanesOf<C>) {
      const V h = at(c).h;
      squares = multiply_add(h, h, squares);
    }
    return C(1) /
           std::sqrt(Vec::sum(squares) / static_cast<C>(a.group_size) + static_cast<C>(a.epsilon));
  }

  const GatedNormArguments& a;

 private:
  const T* rows_of(const RowsView& view, std::int64_t row) const {
    return static_cast<const T*>(view.data) + row / a.b * view.row_stride +
           row % a.b * view.column_stride;
  }

  const T *x_, *z_;
  const C* weight_;
};

template <class T>
void forward_group(const GatedNormForwardArguments& a, std::int64_t row, std::int64_t first) {
  using C = Compute<T>;
  const NormGroup<T> group(a, row, first);
  const auto scale = Vectors<C>::splat(group.rstd());
  T* y = static_cast<T*>(a.y) + row * a.columns + first;
  for (std::int64_t c = 0; c < a.group_size; c += kLanesOf<C>) {
    const auto v = group.at(c);
    const auto normalised = v.h * scale * v.weight;
    Vectors<C>::store(y + c, v.count, a.norm_before_gate ? normalised * v.gate.value : normalised);
  }
}

/// Adds to the sums of the weight's gradient. With d = the gradient of norm(h)·w, the gradient of h
/// is rstd·(d·w − h·rstd²·mean(d·w·h)).
template <class T>
void backward_group(const GatedNormBackwardArguments& a, std::int64_t row, std::int64_t first,
                    Compute<T>* sums) {
  using C = Compute<T>;
  using Vec = Vectors<C>;
  const NormGroup<T> group(a, row, first);
  const std::int64_t place = row * a.columns + first;
  const T* dy = static_cast<const T*>(a.dy) + place;
  T *dx = static_cast<T*>(a.dx) + place, *dz = static_cast<T*>(a.dz) + place;
  const C rstd = group.rstd();
  const auto d_of = [&](const auto& v, auto gradient) {
    return a.norm_before_gate ? gradient * v.gate.value : gradient;
  };
  auto dots = Vec::splat(0);
  for (std::int64_t c = 0; c < a.group_size; c += kLanesOf<C>) {
    const auto v = group.at(c);
    dots = multiply_add(d_of(v, Vec::load(dy + c, v.count)) * v.weight, v.h, dots);
  }
  const auto scale = Vec::splat(rstd),
             pull = Vec::splat(Vec::sum(dots) * rstd * rstd / static_cast<C>(a.group_size));
  for (std::int64_t c = 0; c < a.group_size; c += kLanesOf<C>) {
    const auto v = group.at(c);
    const auto gradient = Vec::load(dy + c, v.count), d = d_of(v, gradient),
               dh = scale * (d * v.weight - v.h * pull);
    const auto dgate = a.norm_before_gate ? gradient * v.h * scale * v.weight : dh * v.x;
    Vec::store(dx + c, v.count, a.norm_before_gate ? dh : dh * v.gate.value);
    Vec::store(dz + c, v.count, dgate * v.gate.slope);
    Vec::store(sums + c, v.count, Vec::load(sums + c, v.count) + d * v.h * scale);
  }
}

inline void gated_norm(const GatedNormForwardArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.type, [&]<class T>(T) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t first = 0; first < a.columns; first += a.group_size)
        forward_group<T>(a, row, first);
    }
  });
}

inline void gated_norm_backward(const GatedNormBackwardArguments& a, std::int64_t begin,
                                std::int64_t end) {
  with_type(a.type, [&]<class T>(T) {
    for (std::int64_t block = begin; block < end; ++block) {
      auto* sums = static_cast<Compute<T>*>(a.weight_blocks) + block * a.columns;
      std::fill_n(sums, a.columns, Compute<T>(0));
      const std::int64_t last = std::min(a.rows, (block + 1) * kRowsPerBlock);
      for (std::int64_t row = block * kRowsPerBlock; row < last; ++row) {
        for (std::int64_t first = 0; first < a.columns; first += a.group_size)
          backward_group<T>(a, row, first, sums + first);
      }
    }
  });
}

GatedNormKernels gated_norm_kernels() { return {gated_norm, gated_norm_backward}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(GatedNormKernels, gated_norm_kernels)
