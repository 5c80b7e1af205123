#include "kernels/cpu/optimizer_kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/conversions.h"

namespace megatron::kernels {
namespace {

/// AdamW (Loshchilov and Hutter 2019) with the scalars of one step worked out.
struct AdamwCoefficients {
  double grad_scale = 1;  ///< gradients are multiplied by it first (clipping)
  double decay = 0;       ///< lr·weight_decay
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double step_size = 0;     ///< lr / (1 − beta1^t)
  double inverse_root = 1;  ///< 1 / √(1 − beta2^t)
};

struct SgdCoefficients {
  double grad_scale = 1;
  double weight_decay = 0;  ///< added to the gradient as weight_decay·w (L2)
  double momentum = 0;
  double lr = 0;
};

/// w ← w − (step_size·m / (√v·inverse_root + eps) + decay·w) after m and v took in the gradient.
template <class T>
void adamw(T* __restrict weight, const T* __restrict grad, T* __restrict exp_avg, T* __restrict exp_avg_sq, std::int64_t count,
           const AdamwCoefficients& c) {
  const T scale = static_cast<T>(c.grad_scale), decay = static_cast<T>(c.decay), eps = static_cast<T>(c.eps);
  const T beta1 = static_cast<T>(c.beta1), rest1 = static_cast<T>(1 - c.beta1);
  const T beta2 = static_cast<T>(c.beta2), rest2 = static_cast<T>(1 - c.beta2);
  const T step_size = static_cast<T>(c.step_size), inverse_root = static_cast<T>(c.inverse_root);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] * scale;
    const T m = beta1 * exp_avg[i] + rest1 * g;
    const T v = beta2 * exp_avg_sq[i] + rest2 * (g * g);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weight[i] -= step_size * (m / (std::sqrt(v) * inverse_root + eps)) + decay * weight[i];
  }
}

/// w ← w − lr·b with b = momentum·b + g + weight_decay·w; `momentum_buffer` is null when momentum is 0 (b = g + weight_decay·w).
template <class T>
void sgd(T* __restrict weight, const T* __restrict grad, T* __restrict momentum_buffer, std::int64_t count, const SgdCoefficients& c) {
  const T scale = static_cast<T>(c.grad_scale), decay = static_cast<T>(c.weight_decay);
  const T momentum = static_cast<T>(c.momentum), lr = static_cast<T>(c.lr);
  if (momentum_buffer == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) weight[i] -= lr * (grad[i] * scale + decay * weight[i]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    momentum_buffer[i] = momentum * momentum_buffer[i] + (grad[i] * scale + decay * weight[i]);
    weight[i] -= lr * momentum_buffer[i];
  }
}

constexpr std::int64_t kBlock = kStateBlock;

AdamwCoefficients adamw_coefficients(const StepRules& rules, const StepScalars& scalars, const UpdateChunk& chunk) {
  const double lr = scalars.lr[chunk.group];
  return {.grad_scale = scalars.grad_scale,
          .decay = chunk.is_decayed ? lr * scalars.weight_decay : 0,
          .beta1 = rules.beta1,
          .beta2 = rules.beta2,
          .eps = rules.eps,
          .step_size = lr / scalars.bias_correction1,
          .inverse_root = 1 / std::sqrt(scalars.bias_correction2)};
}

SgdCoefficients sgd_coefficients(const StepRules& rules, const StepScalars& scalars, const UpdateChunk& chunk) {
  return {.grad_scale = scalars.grad_scale,
          .weight_decay = chunk.is_decayed ? scalars.weight_decay : 0,
          .momentum = rules.momentum,
          .lr = scalars.lr[chunk.group]};
}

template <class T>
void apply_rule(T* main, const T* grad, T* first, T* second, std::int64_t count, const UpdateChunk& chunk, const StepRules& rules,
                const StepScalars& scalars) {
  if (rules.rule == UpdateRule::adamw) {
    adamw(main, grad, first, second, count, adamw_coefficients(rules, scalars, chunk));
  } else {
    sgd(main, grad, first, count, sgd_coefficients(rules, scalars, chunk));
  }
}

void* at(void* values, Type type, std::int64_t index) { return static_cast<char*>(values) + index * size_of(type); }
const void* at(const void* values, Type type, std::int64_t index) { return static_cast<const char*>(values) + index * size_of(type); }

/// One block of a state as f32: in place, or in a buffer that is written back.
class StateBlock {
 public:
  StateBlock(const UpdateChunk& chunk, const UpdateTypes& types, int index, std::int64_t begin, std::int64_t count)
      : type_(types.state[index]), count_(count) {
    if (chunk.state[index] == nullptr) return;
    stored_ = at(chunk.state[index], type_, begin);
    if (type_ == Type::f32) {
      values_ = static_cast<float*>(stored_);
      return;
    }
    values_ = buffer_;
    if (type_ == Type::f16) {
      scale_ = chunk.state_scale[index] + begin / kStateBlock;
      conversions().decode_blocks(static_cast<std::uint16_t*>(stored_), scale_, buffer_, count_);
    } else {
      conversions().to_f32(stored_, type_, buffer_, count_);
    }
  }
  float* values() { return values_; }
  void write_back() {
    if (values_ != buffer_) return;
    if (type_ == Type::f16) {
      conversions().encode_blocks(buffer_, static_cast<std::uint16_t*>(stored_), scale_, count_);
    } else {
      conversions().from_f32(buffer_, stored_, type_, count_);
    }
  }

 private:
  Type type_;
  std::int64_t count_;
  void* stored_ = nullptr;
  float* scale_ = nullptr;
  float* values_ = nullptr;
  float buffer_[kBlock];
};

/// The rule with some storage of 16 bits, block by block in the cache.
void update_mixed(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules, const StepScalars& scalars) {
  float grad_buffer[kBlock];
  for (std::int64_t begin = 0; begin < chunk.count; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, chunk.count - begin);
    float* main = static_cast<float*>(chunk.main) + begin;
    const auto* grad = static_cast<const float*>(at(chunk.grad, types.grad, begin));
    if (types.grad != Type::f32) {
      conversions().to_f32(grad, types.grad, grad_buffer, count);
      grad = grad_buffer;
    }
    StateBlock first(chunk, types, 0, begin, count), second(chunk, types, 1, begin, count);
    apply_rule(main, grad, first.values(), second.values(), count, chunk, rules, scalars);
    first.write_back();
    second.write_back();
    if (chunk.weight != nullptr) conversions().from_f32(main, at(chunk.weight, types.weight, begin), types.weight, count);
  }
}

template <class T>
void update_plain(const UpdateChunk& chunk, const StepRules& rules, const StepScalars& scalars) {
  apply_rule(static_cast<T*>(chunk.main), static_cast<const T*>(chunk.grad), static_cast<T*>(chunk.state[0]), static_cast<T*>(chunk.state[1]),
             chunk.count, chunk, rules, scalars);
}

constexpr int kLanes = 32, kLanesAtOnce = 16;

/// Lane l adds the squares of elements l, l + 32, …; then lane i takes lane i + half, half = 16 … 1.
template <class T>
double squares(const T* values, std::int64_t count) {
  double lanes[kLanes] = {};
  if (count == kStateBlock) {
    for (int first = 0; first < kLanes; first += kLanesAtOnce) {
      double sums[kLanesAtOnce] = {};
      for (std::int64_t i = first; i < kStateBlock; i += kLanes) {
        for (int lane = 0; lane < kLanesAtOnce; ++lane) sums[lane] += static_cast<double>(values[i + lane]) * static_cast<double>(values[i + lane]);
      }
      std::copy_n(sums, kLanesAtOnce, lanes + first);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
std::int64_t zeros(const T* values, std::int64_t count) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found += values[i] == 0;
  return found;
}

/// Calls use(values, count) with elements [begin, end) of a gradient in f32 or f64, a block at most.
template <class Use>
auto with_block(const UpdateChunk& chunk, Type type, std::int64_t begin, std::int64_t end, Use use) {
  const void* values = at(chunk.grad, type, begin);
  if (type == Type::f64) return use(static_cast<const double*>(values), end - begin);
  if (type == Type::f32) return use(static_cast<const float*>(values), end - begin);
  float buffer[kBlock];
  conversions().to_f32(values, type, buffer, end - begin);
  return use(static_cast<const float*>(buffer), end - begin);
}

/// A block some of whose elements do not count.
double squares_of_some(const UpdateChunk& chunk, Type type, std::int64_t begin, std::int64_t end) {
  return with_block(chunk, type, begin, end, [&](const auto* values, std::int64_t count) {
    std::remove_cvref_t<decltype(*values)> counted[kBlock];
    for (std::int64_t i = 0; i < count; ++i) counted[i] = begin + i >= chunk.skip_begin && begin + i < chunk.skip_end ? 0 : values[i];
    return squares(counted, count);
  });
}

}  // namespace

void update_chunk(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules, const StepScalars& scalars) {
  const auto all_are = [&](Type type) {
    return types.grad == type && (chunk.state[0] == nullptr || types.state[0] == type) && (chunk.state[1] == nullptr || types.state[1] == type);
  };
  if (types.main == Type::f64) return update_plain<double>(chunk, rules, scalars);
  if (chunk.weight == nullptr && all_are(Type::f32)) return update_plain<float>(chunk, rules, scalars);
  update_mixed(chunk, types, rules, scalars);
}

double sum_of_squares(const UpdateChunk& chunk, Type type) {
  double blocks[kChunkElements / kBlock];
  std::int64_t num_blocks = 0;
  for (std::int64_t begin = 0; begin < chunk.count; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, chunk.count);
    const bool all_count = end <= chunk.skip_begin || begin >= chunk.skip_end;
    blocks[num_blocks++] = all_count
                               ? with_block(chunk, type, begin, end, [](const auto* values, std::int64_t count) { return squares(values, count); })
                               : squares_of_some(chunk, type, begin, end);
  }
  return add_pairwise(blocks, num_blocks);
}

std::int64_t count_zeros(const UpdateChunk& chunk, Type type) {
  std::int64_t found = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kBlock)
      found +=
          with_block(chunk, type, begin, std::min(begin + kBlock, end), [](const auto* values, std::int64_t count) { return zeros(values, count); });
  };
  add(0, chunk.skip_begin);
  add(chunk.skip_end, chunk.count);
  return found;
}

}  // namespace megatron::kernels
