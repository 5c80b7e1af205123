// Blocks of a KV cache in 8 bits. A block has the layout of packed keys and values (attention.h),
// with a byte for each number: int8 or FP8 E4M3. Before them stand kKeys scales of keys and kKeys
// of values in float32: the largest magnitude of a row over the largest code. A row is rounded by
// itself, to the nearest code, so it does not depend on when it was appended.
#pragma once

#include <float.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention_operands.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Added to a float below 2²², leaves the nearest whole number in its low bits.
constexpr float kRoundsToInteger = 0x1.8p23f;
/// Rows without a number of this size become zero, because their scale could be subnormal.
constexpr float kSmallestOfRow = 0x1p-100f;

/// Codes of numbers from −kLargest to kLargest.
struct Int8Code {
  static constexpr float kLargest = 127;
  static std::uint8_t encode(float x) {
    return static_cast<std::uint8_t>(__builtin_bit_cast(std::uint32_t, x + kRoundsToInteger));
  }
  static float decode(std::uint8_t code) {
    return static_cast<float>(static_cast<std::int8_t>(code));
  }
};

/// Four bits of exponent, whose bias is 7, and three of fraction.
struct E4m3Code {
  static constexpr float kLargest = 448;
  static std::uint8_t encode(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t sign = (bits >> 31) << 7, magnitude = bits & 0x7FFFFFFFu;
    const std::uint32_t normal =
        ((magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
    const float multiple = __builtin_bit_cast(float, magnitude) * 0x1p9f + kRoundsToInteger;
    const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, multiple) & 0xFFu;
    const std::uint32_t code = magnitude < (121u << 23) ? subnormal : normal;
    return static_cast<std::uint8_t>(sign | (code < 0x7Eu ? code : 0x7Eu));
  }
  /// Without a choice between values, so that loops become vectors: a code without exponent is read
  /// as if it had the least one, whose leading 1 is then taken off.
  static float decode(std::uint8_t code) {
    const std::uint32_t magnitude = code & 0x7Fu, has_exponent = magnitude < 8 ? 0u : 1u,
                        bits = (magnitude << 20) + ((121u - has_exponent) << 23);
    const float value = __builtin_bit_cast(float, bits) -
                        static_cast<float>(1 - static_cast<int>(has_exponent)) * 0x1p-6f;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, value) |
                                         (static_cast<std::uint32_t>(code >> 7) << 31));
  }
};

/// Writes the codes of a row and returns its scale, which is NaN if the row is not finite.
/// `numbers` has room for the row.
template <class Code>
float encode_row(const Rows& rows, std::int64_t r, float* numbers, std::uint8_t* codes) {
  with_type(rows.type, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      const T* from = static_cast<const T*>(rows.data) + r * rows.stride;
      for (std::int64_t c = 0; c < rows.channels; ++c) numbers[c] = load(from[c]);
    }
  });
  float largest = 0;
  bool is_finite = true;
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    const float magnitude = __builtin_fabsf(numbers[c]);
    largest = magnitude > largest ? magnitude : largest;
    is_finite = is_finite && magnitude <= FLT_MAX;
  }
  const bool has_codes = is_finite && largest >= kSmallestOfRow;
  const float inverse = has_codes ? Code::kLargest / largest : 0;
  for (std::int64_t c = 0; c < rows.channels; ++c)
    codes[c] = has_codes ? Code::encode(numbers[c] * inverse) : std::uint8_t{0};
  if (!is_finite) return __builtin_nanf("");
  return has_codes ? largest / Code::kLargest : 0;
}

/// A block of one sample and group. `Number` is what the micro-kernel multiplies: float, or Bf16,
/// of which two make a step.
template <class Code, class Number>
class CodedBlock {
 public:
  CodedBlock(const AttentionForwardArguments& a, char* memory)
      : a_(a),
        key_steps_(a.micro_kernel->steps_of(a.d)),
        value_steps_(a.micro_kernel->steps_of(kKeys)),
        key_scales_(reinterpret_cast<float*>(memory)),
        value_scales_(key_scales_ + kKeys),
        keys_(reinterpret_cast<std::uint8_t*>(value_scales_ + kKeys)),
        values_(keys_ + kKeys * key_steps_ * kPerStep) {}

  /// Writes a key and a value to `position`. `scratch` has room for a row of floats and one of
  /// codes.
  void write(const Rows& keys, const Rows& values, std::int64_t r, std::int64_t position,
             float* scratch) {
    auto* const codes =
        reinterpret_cast<std::uint8_t*>(scratch + std::max(keys.channels, values.channels));
    key_scales_[position] = encode_row<Code>(keys, r, scratch, codes);
    for (std::int64_t c = 0; c < keys.channels; ++c)
      keys_[place(key_steps_, c, position)] = codes[c];
    value_scales_[position] = encode_row<Code>(values, r, scratch, codes);
    for (std::int64_t c = 0; c < values.channels; ++c)
      values_[place(value_steps_, position, c)] = codes[c];
  }

  /// Unpacks the first `count` positions as a packed block. What a GEMM reads of later ones is
  /// zero.
  void unpack(std::int64_t count, char* to) const {
    auto* const keys = reinterpret_cast<Number*>(to);
    auto* const values = keys + kKeys * key_steps_ * kPerStep;
    float scales[kStep], of_positions[kKeys] = {};
    std::memcpy(of_positions, key_scales_, static_cast<std::size_t>(4 * count));
    for (std::int64_t panel = 0; panel < panels_of(count); ++panel) {
      for (std::int64_t i = 0; i < kStep; ++i)
        scales[i] = of_positions[panel * kPanelColumns + i / kPerStep];
      for (std::int64_t s = panel * key_steps_; s < (panel + 1) * key_steps_; ++s)
        unpack_step(keys_ + s * kStep, scales, keys + s * kStep);
    }
    std::memcpy(of_positions, value_scales_, static_cast<std::size_t>(4 * count));
    for (std::int64_t s = 0; s < a_.micro_kernel->steps_of(count); ++s) {
      for (std::int64_t i = 0; i < kStep; ++i)
        scales[i] = of_positions[s * kPerStep + i % kPerStep];
      for (std::int64_t panel = 0; panel < panels_of(a_.dv); ++panel) {
        const std::int64_t first = (panel * value_steps_ + s) * kStep;
        unpack_step(values_ + first, scales, values + first);
      }
    }
  }

 private:
  static constexpr std::int64_t kPerStep = 4 / sizeof(Number), kStep = kPanelColumns * kPerStep;

  /// Returns the index of a number in panels that are `steps` deep.
  static std::int64_t place(std::int64_t steps, std::int64_t depth, std::int64_t column) {
    const std::int64_t step = column / kPanelColumns * steps + depth / kPerStep;
    return step * kStep + column % kPanelColumns * kPerStep + depth % kPerStep;
  }
  static void unpack_step(const std::uint8_t* __restrict codes, const float* __restrict scales,
                          Number* __restrict to) {
    for (std::int64_t i = 0; i < kStep; ++i) store(to[i], Code::decode(codes[i]) * scales[i]);
  }

  const AttentionForwardArguments& a_;
  std::int64_t key_steps_, value_steps_;
  float *key_scales_, *value_scales_;
  std::uint8_t *keys_, *values_;
};

/// Calls use(CodedBlock) for a block of the cache.
template <class Use>
void with_coded_block(const AttentionForwardArguments& a, char* memory, const Use& use) {
  const bool is_int8 = a.packed.type == KvCacheType::int8;
  if (a.micro_kernel->type == Type::bf16)
    return is_int8 ? use(CodedBlock<Int8Code, Bf16>(a, memory))
                   : use(CodedBlock<E4m3Code, Bf16>(a, memory));
  is_int8 ? use(CodedBlock<Int8Code, float>(a, memory))
          : use(CodedBlock<E4m3Code, float>(a, memory));
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
