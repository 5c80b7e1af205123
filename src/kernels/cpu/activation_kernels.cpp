// The activation kernels, compiled once for each instruction set.
#include "kernels/cpu/activation_kernels.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cpu/activation_math.h"
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"
#include "kernels/cpu/vectors.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Calls use(F{}) with the activation's functor.
template <class Use>
void with_activation(ActivationKind kind, Use use) {
  switch (kind) {
    case ActivationKind::gelu:
      return use(Gelu{});
    case ActivationKind::gelu_tanh:
      return use(GeluTanh{});
    case ActivationKind::relu:
      return use(Relu{});
    case ActivationKind::squared_relu:
      return use(SquaredRelu{});
    case ActivationKind::silu:
      return use(Silu{});
    case ActivationKind::quick_gelu:
      return use(QuickGelu{});
  }
}

/// How a form uses the second half of the columns: not at all, as it is, or within GateBounds.
enum class Gate { none, plain, bounded };

template <class T>
auto bounds_of(const ActivationForm& form) {
  using S = Vectors<Compute<T>>;
  using C = Compute<T>;
  return GateBounds<typename S::V>{S::splat(static_cast<C>(form.clamp)),
                                   S::splat(static_cast<C>(-form.clamp)),
                                   S::splat(static_cast<C>(form.linear_offset))};
}

/// Calls use(F{}, T{}, gate) with the functor, the storage type and a constant of type Gate.
template <class Use>
void with_form(const ActivationForm& form, Type type, Use use) {
  const bool is_bounded = form.clamp < std::numeric_limits<double>::infinity();
  with_activation(form.kind, [&]<class F>(F f) {
    with_type(type, [&]<class T>(T t) {
      if (!form.gated) return use(f, t, std::integral_constant<Gate, Gate::none>{});
      if (!is_bounded && form.linear_offset == 0)
        return use(f, t, std::integral_constant<Gate, Gate::plain>{});
      use(f, t, std::integral_constant<Gate, Gate::bounded>{});
    });
  });
}

/// Returns the weight of a row; 1, which changes no bit, without weights.
template <class T>
Compute<T> weight_of(const void* weights, std::int64_t row) {
  return weights != nullptr ? static_cast<const Compute<T>*>(weights)[row] : Compute<T>(1);
}

template <class F, class T, Gate gate>
void activation_rows(const ActivationArguments& a, std::int64_t begin, std::int64_t end) {
  using S = Vectors<Compute<T>>;
  constexpr bool gated = gate != Gate::none;
  const std::int64_t columns = a.columns, width = gated ? 2 * columns : columns;
  const Compute<T>* bias = static_cast<const Compute<T>*>(a.bias);
  const auto bounds = bounds_of<T>(a.form);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * width;
    T* y = static_cast<T*>(a.y) + row * columns;
    const auto weight = S::splat(weight_of<T>(a.weights, row));
    for (std::int64_t c = 0; c < columns; c += S::kLanes) {
      const std::int64_t count = columns - c;
      auto z = S::load(x + c, count) + S::load(bias + c, count);
      if constexpr (gate == Gate::bounded) z = bounds.gate(z);
      auto value = F::at(z).value;
      if constexpr (gated) {
        auto up = S::load(x + columns + c, count) + S::load(bias + columns + c, count);
        if constexpr (gate == Gate::bounded) up = bounds.up(up);
        value = value * up;
      }
      S::store(y + c, count, value * weight);
    }
  }
}

/// The pointers of a row. `sums` or `y` may be null.
template <class T>
struct ActivationBackwardRow {
  const T *dy, *x;
  T *dx, *y;
  Compute<T>* sums;
};

/// Computes the gradient of a row and returns that of its weight. With `summed`, also adds the
/// former to `sums` before rounding. If `y` is not null, it receives the row of the forward pass.
template <class F, class T, Gate gate, bool summed>
Compute<T> activation_backward_row(const ActivationBackwardArguments& a,
                                   const ActivationBackwardRow<T>& row, Compute<T> row_weight) {
  using S = Vectors<Compute<T>>;
  const auto [dy, x, dx, y, sums] = row;
  const Compute<T>* bias = static_cast<const Compute<T>*>(a.bias);
  const std::int64_t columns = a.columns;
  const auto weight = S::splat(row_weight);
  const auto bounds = bounds_of<T>(a.form);
  auto dweight = S::splat(0);
  for (std::int64_t c = 0; c < columns; c += S::kLanes) {
    const std::int64_t count = columns - c;
    const auto z = S::load(x + c, count) + S::load(bias + c, count);
    const auto f = F::at(gate == Gate::bounded ? bounds.gate(z) : z);
    const auto d_weighted = S::load(dy + c, count), d_out = d_weighted * weight;
    auto d = d_out * f.slope;
    auto value = f.value;
    if constexpr (gate != Gate::none) {
      auto d_up = d_out * f.value,
           up = S::load(x + columns + c, count) + S::load(bias + columns + c, count);
      if constexpr (gate == Gate::bounded) {
        d_up = bounds.up_gradient(up, d_up);
        up = bounds.up(up);
      }
      d = d * up;
      if constexpr (gate == Gate::bounded) d = bounds.gate_gradient(z, d);
      value = value * up;
      S::store(dx + columns + c, count, d_up);
      if constexpr (summed)
        S::store(sums + columns + c, count, S::load(sums + columns + c, count) + d_up);
    }
    dweight = dweight + d_weighted * value;
    if (y != nullptr) S::store(y + c, count, value * weight);
    S::store(dx + c, count, d);
    if constexpr (summed) S::store(sums + c, count, S::load(sums + c, count) + d);
  }
  return S::sum(dweight);
}

template <class F, class T, Gate gate>
void activation_backward_blocks(const ActivationBackwardArguments& a, std::int64_t begin,
                                std::int64_t end) {
  using C = Compute<T>;
  const std::int64_t columns = a.columns, width = gate == Gate::none ? columns : 2 * columns;
  for (std::int64_t block = begin; block < end; ++block) {
    C* sums = a.bias_blocks != nullptr ? static_cast<C*>(a.bias_blocks) + block * width : nullptr;
    if (sums != nullptr) std::fill_n(sums, width, C(0));
    for (std::int64_t row = block * kRowsPerBlock;
         row < std::min(a.rows, (block + 1) * kRowsPerBlock); ++row) {
      const ActivationBackwardRow<T> pointers{
          .dy = static_cast<const T*>(a.dy) + row * columns,
          .x = static_cast<const T*>(a.x) + row * width,
          .dx = static_cast<T*>(a.dx) + row * width,
          .y = a.y != nullptr ? static_cast<T*>(a.y) + row * columns : nullptr,
          .sums = sums};
      const C weight = weight_of<T>(a.weights, row);
      const C dweight = sums != nullptr
                            ? activation_backward_row<F, T, gate, true>(a, pointers, weight)
                            : activation_backward_row<F, T, gate, false>(a, pointers, weight);
      if (a.weights != nullptr) static_cast<C*>(a.dweights)[row] = dweight;
    }
  }
}

inline void activation(const ActivationArguments& a, std::int64_t begin, std::int64_t end) {
  with_form(a.form, a.type, [&]<class F, class T, class G>(F, T, G) {
    activation_rows<F, T, G::value>(a, begin, end);
  });
}

inline void activation_backward(const ActivationBackwardArguments& a, std::int64_t begin,
                                std::int64_t end) {
  with_form(a.form, a.type, [&]<class F, class T, class G>(F, T, G) {
    activation_backward_blocks<F, T, G::value>(a, begin, end);
  });
}

ActivationKernels activation_kernels() { return {activation, activation_backward}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(ActivationKernels, activation_kernels)
