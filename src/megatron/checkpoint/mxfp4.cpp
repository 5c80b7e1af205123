#include "megatron/checkpoint/mxfp4.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Values = std::array<std::array<c10::BFloat16, 16>, 256>;

/// Returns the numbers of all 4 bits with each scale.
Values make_values() {
  constexpr std::array<float, 8> kMagnitudes{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  Values values;
  for (int scale = 0; scale < 256; ++scale) {
    for (std::size_t bits = 0; bits < 16; ++bits) {
      const float value = std::ldexp(kMagnitudes[bits % 8], scale - 127);
      values[static_cast<std::size_t>(scale)][bits] = bits < 8 ? value : -value;
    }
  }
  return values;
}

}  // namespace

at::Tensor dequantized_mxfp4(const at::Tensor& packed, const at::Tensor& scales) {
  static const Values values = make_values();
  const at::Tensor pairs = packed.contiguous(), exponents = scales.contiguous();
  MEGATRON_CHECK(2 * pairs.numel() == kMxfp4Block * exponents.numel(), "MXFP4 of ", pairs.numel(),
                 " bytes with ", exponents.numel(), " scales");
  std::vector<std::int64_t> shape = pairs.sizes().vec();
  shape.back() *= 2;
  at::Tensor result = at::empty(shape, at::kBFloat16);
  const auto* pair = pairs.const_data_ptr<std::uint8_t>();
  const auto* exponent = exponents.const_data_ptr<std::uint8_t>();
  auto* out = result.mutable_data_ptr<c10::BFloat16>();
  for (std::int64_t block = 0; block < exponents.numel(); ++block) {
    const auto& of_scale = values[exponent[block]];
    for (std::int64_t i = 0; i < kMxfp4Block; i += 2, ++pair) {
      *out++ = of_scale[*pair & 15];
      *out++ = of_scale[*pair >> 4];
    }
  }
  return result;
}

}  // namespace megatron
