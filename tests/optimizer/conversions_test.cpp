// Compares conversions with ATen's and checks block scales against their definition.
#include "kernels/cpu/conversions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "kernels/optimizer_operations.h"

namespace megatron {
namespace {

const std::pair<kernels::Type, at::ScalarType> kNarrow[] = {{kernels::Type::bf16, at::kBFloat16},
                                                            {kernels::Type::f16, at::kHalf}};

bool same(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.nan_to_num(-77), b.nan_to_num(-77)) && at::equal(a.isnan(), b.isnan());
}

TEST(Conversions, WidenEveryPattern) {
  const at::Tensor patterns = at::arange(1 << 16, at::kInt).to(at::kShort);
  for (const auto& [type, dtype] : kNarrow) {
    at::Tensor wide = at::empty({1 << 16});
    kernels::conversions().to_f32(patterns.const_data_ptr(), type, wide.mutable_data_ptr<float>(),
                                  wide.numel());
    EXPECT_TRUE(same(wide, patterns.view(dtype).to(at::kFloat))) << dtype;
  }
}

TEST(Conversions, RoundToNearestEven) {
  // Every 16-bit number of both types, midpoints between neighbours, values close to midpoints, and
  // values that overflow.
  at::Tensor values =
      at::cat({at::arange(1 << 16, at::kInt).to(at::kShort).view(at::kBFloat16).to(at::kFloat),
               at::arange(1 << 16, at::kInt).to(at::kShort).view(at::kHalf).to(at::kFloat)});
  std::vector<at::Tensor> all{values};
  for (const double nudge : {1 + 0x1p-9, 1 + 0x1p-12, 1 + 0x1p-9 + 0x1p-22, 1 + 0x1p-12 - 0x1p-22})
    all.push_back(values * nudge);
  values = at::cat(all);
  for (const auto& [type, dtype] : kNarrow) {
    at::Tensor narrow = at::empty(values.sizes(), at::TensorOptions().dtype(dtype));
    kernels::conversions().from_f32(values.const_data_ptr<float>(), narrow.mutable_data_ptr(), type,
                                    values.numel());
    EXPECT_TRUE(same(narrow.to(at::kFloat), values.to(dtype).to(at::kFloat))) << dtype;
  }
}

TEST(Conversions, BlocksKeepElevenBitsOfTheirLargestAndDecodeExactly) {
  const std::int64_t size = 3 * kernels::kStateBlock + 17;
  at::Tensor values = at::randn({size}) * at::logspace(-30, 30, size);
  values.narrow(0, 0, kernels::kStateBlock).zero_();
  values[300].fill_(0x1.fffp-3);  // rounds up to a power of two
  at::Tensor packed = at::empty({size}, at::kShort), scales = at::empty({4}),
             decoded = at::empty({size}), again = at::empty({size}, at::kShort);
  const auto bits = [](at::Tensor& tensor) {
    return static_cast<std::uint16_t*>(tensor.mutable_data_ptr());
  };
  const auto& convert = kernels::conversions();
  convert.encode_blocks(values.const_data_ptr<float>(), bits(packed),
                        scales.mutable_data_ptr<float>(), size);
  convert.decode_blocks(bits(packed), scales.const_data_ptr<float>(),
                        decoded.mutable_data_ptr<float>(), size);
  for (std::int64_t block = 0; block * kernels::kStateBlock < size; ++block) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.slice(0, block * kernels::kStateBlock,
                          std::min(size, (block + 1) * kernels::kStateBlock));
    };
    const double largest = part(values).abs().max().item<double>();
    EXPECT_LE((part(decoded) - part(values)).abs().max().item<double>(), largest * 0x1p-11);
  }
  convert.encode_blocks(decoded.const_data_ptr<float>(), bits(again),
                        scales.mutable_data_ptr<float>(), size);
  EXPECT_TRUE(at::equal(packed, again));
}

}  // namespace
}  // namespace megatron
