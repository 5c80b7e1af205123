#include "megatron/checkpoint/mxfp4.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace megatron {
namespace {

// The expected numbers are those of convert_moe_packed_tensors() in transformers, transposed.
TEST(Mxfp4, EqualsTransformers) {
  const at::Tensor bits = at::arange(16), pairs = (bits + (15 - bits) * 16).to(at::kByte),
                   packed = pairs.expand({1, 3, 16}).clone(),
                   scales = at::tensor({126, 130, 0}, at::kByte).view({1, 3, 1});
  const at::Tensor found = dequantized_mxfp4(packed, scales);
  EXPECT_EQ(found.sizes(), (std::vector<std::int64_t>{1, 3, 32}));
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  const at::Tensor expected =
      at::tensor({0.0,   -3.0, 0.25,  -2.0, 0.5,  -1.5, 0.75, -1.0,  1.0,  -0.75, 1.5,
                  -0.5,  2.0,  -0.25, 3.0,  -0.0, -0.0, 3.0,  -0.25, 2.0,  -0.5,  1.5,
                  -0.75, 1.0,  -1.0,  0.75, -1.5, 0.5,  -2.0, 0.25,  -3.0, 0.0});
  EXPECT_TRUE(found[0][0].to(at::kDouble).equal(expected));
  EXPECT_TRUE(found[0][1].to(at::kDouble).equal(expected * 16));
  EXPECT_TRUE(found[0][2].to(at::kDouble).equal(expected * std::ldexp(1.0, -126)));
}

TEST(Mxfp4, LargestScalesOverflowAsInTransformers) {
  const at::Tensor packed = at::tensor({0x10, 0x42, 0xF9}, at::kByte).repeat_interleave(16),
                   scales = at::tensor({255, 254, 254}, at::kByte);
  const at::Tensor found = dequantized_mxfp4(packed, scales).to(at::kFloat);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(found.view({3, 16, 2})
                  .select(1, 7)
                  .flatten()
                  .equal(at::tensor({0.0F, 0x1p127F, 0x1p127F, inf, -0x1p126F, -inf})));
}

}  // namespace
}  // namespace megatron
