// The cross entropy kernels, compiled once for each instruction set.
#include "kernels/cpu/cross_entropy.h"

#include <cstdint>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"
#include "kernels/cpu/vec16f.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

inline constexpr std::int64_t kBlockColumns = 1024;
inline constexpr int kSums = 4;  // vectors of sixteen lanes

/// Keeps Σ exp(logit − largest) of the columns so far.
struct OnlineLogSumExp {
  float largest = -__builtin_inff();
  Vec16f sums[kSums] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};

  void add_block(const float* x, std::int64_t count) {
    constexpr std::int64_t kStep = kSums * kNumLanes;
    const float lowest = -__builtin_inff();
    const std::int64_t whole = count - count % kStep;
    Vec16f found[kSums] = {broadcast(largest), broadcast(largest), broadcast(largest),
                           broadcast(largest)};
    for (std::int64_t c = 0; c < whole; c += kStep) {
      for (int i = 0; i < kSums; ++i) found[i] = larger(load_vec(x + c + i * kNumLanes), found[i]);
    }
    for (std::int64_t c = whole; c < count; c += kNumLanes)
      found[0] = larger(load_partial(x + c, count - c, lowest), found[0]);
    raise(horizontal_max(larger(larger(found[0], found[1]), larger(found[2], found[3]))));
    const Vec16f origin = broadcast(largest);
    for (std::int64_t c = 0; c < whole; c += kStep) {
      for (int i = 0; i < kSums; ++i)
        sums[i] = sums[i] + exponential(load_vec(x + c + i * kNumLanes) - origin);
    }
    for (std::int64_t c = whole, i = 0; c < count; c += kNumLanes, ++i)
      sums[i] = sums[i] + exponential(load_partial(x + c, count - c, lowest) - origin);
  }
  void raise(float to) {
    if (!(to > largest)) return;
    const Vec16f factor = exponential(broadcast(largest - to));
    for (Vec16f& sum : sums) sum = sum * factor;
    largest = to;
  }
  float log_of_sum() const {
    const float sum = horizontal_sum(((sums[0] + sums[1]) + sums[2]) + sums[3]);
    return static_cast<float>(static_cast<double>(largest) +
                              __builtin_log(static_cast<double>(sum)));
  }
};

inline float log_sum_exp(const float* x, std::int64_t columns) {
  OnlineLogSumExp running;
  for (std::int64_t c = 0; c < columns; c += kBlockColumns)
    running.add_block(x + c, columns - c < kBlockColumns ? columns - c : kBlockColumns);
  return running.log_of_sum();
}

inline double log_sum_exp(const double* x, std::int64_t columns) {
  double largest = -__builtin_inf(), sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) largest = x[c] > largest ? x[c] : largest;
  for (std::int64_t c = 0; c < columns; ++c) sum += __builtin_exp(x[c] - largest);
  return largest + __builtin_log(sum);
}

/// Returns the label's column in these rows, or −1.
inline std::int64_t label_column(const CrossEntropyRows& rows, std::int64_t row) {
  const std::int64_t column = rows.labels[row] - rows.first_column;
  return column >= 0 && column < rows.columns ? column : -1;
}

template <class T>
void statistics_of(const CrossEntropyStatistics& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.rows.logits) + row * a.rows.row_stride;
    const std::int64_t label = label_column(a.rows, row);
    static_cast<T*>(a.lse)[row] = log_sum_exp(x, a.rows.columns);
    static_cast<T*>(a.label_logit)[row] = label < 0 ? 0 : x[label];
  }
}

inline void statistics(const CrossEntropyStatistics& a, std::int64_t begin, std::int64_t end) {
  a.rows.type == Type::f64 ? statistics_of<double>(a, begin, end)
                           : statistics_of<float>(a, begin, end);
}

/// `to` may be x if both have the same type.
template <class To>
void gradient_of_row(const float* x, To* to, std::int64_t columns, std::int64_t label, float lse,
                     float factor) {
  const Vec16f origin = broadcast(lse), factors = broadcast(factor);
  float at_label[kNumLanes];
  if (label >= 0)
    store_vec(at_label, (exponential(broadcast(x[label]) - origin) - broadcast(1)) * factors);
  std::int64_t c = 0;
  for (; c + kNumLanes <= columns; c += kNumLanes)
    store_vec(to + c, exponential(load_vec(x + c) - origin) * factors);
  store_partial(to + c, columns - c,
                exponential(load_partial(x + c, columns - c, lse) - origin) * factors);
  if (label >= 0) store(to[label], at_label[0]);
}

inline void gradient_of_row(const double* x, double* to, std::int64_t columns, std::int64_t label,
                            double lse, double factor) {
  for (std::int64_t c = 0; c < columns; ++c)
    to[c] = (__builtin_exp(x[c] - lse) - (c == label ? 1 : 0)) * factor;
}

template <class T, class To>
void gradient_of(const CrossEntropyGradient& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.rows.logits) + row * a.rows.row_stride;
    To* to = static_cast<To*>(a.gradient) + row * a.gradient_row_stride;
    const T factor = static_cast<const T*>(a.mask)[row] * static_cast<T>(a.scale);
    gradient_of_row(x, to, a.rows.columns, label_column(a.rows, row),
                    static_cast<const T*>(a.lse)[row], factor);
  }
}

inline void gradient(const CrossEntropyGradient& a, std::int64_t begin, std::int64_t end) {
  switch (a.gradient_type) {
    case Type::f64:
      return gradient_of<double, double>(a, begin, end);
    case Type::f32:
      return gradient_of<float, float>(a, begin, end);
    case Type::bf16:
      return gradient_of<float, Bf16>(a, begin, end);
    case Type::f16:
      return gradient_of<float, F16>(a, begin, end);
  }
}

CrossEntropyKernels cross_entropy_kernels() { return {statistics, gradient}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(CrossEntropyKernels, cross_entropy_kernels)
