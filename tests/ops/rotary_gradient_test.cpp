// Rotary embedding against complex multiplication (forward) and central differences in float64
// (backward).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "megatron/ops/query_key_value.h"
#include "megatron/ops/rotary.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

/// Rotates the first 2·columns channels of x [s, b, n, d] pair by pair.
at::Tensor textbook(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                    bool interleaved) {
  const std::int64_t s = x.size(0), b = x.size(1), half = cos.size(1);
  const auto table = [&](const at::Tensor& t) {
    return t.size(0) == s ? t.view({s, 1, 1, half}) : t.view({s, b, 1, half});
  };
  at::Tensor y = x.detach().clone();
  for (std::int64_t i = 0; i < half; ++i) {
    const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : half + i;
    const at::Tensor a = x.select(3, first), c = x.select(3, second),
                     cosine = table(cos).select(3, i), sine = table(sin).select(3, i);
    y.select(3, first).copy_(a * cosine - c * sine);
    y.select(3, second).copy_(c * cosine + a * sine);
  }
  return y;
}

TEST(RotaryGradient, HalfInterleavedPartialAndPositionsPerSample) {
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t half : {2, 4}) {
      for (const std::int64_t b : {1, 3}) {
        for (const bool per_sample : {false, true}) {
          const std::int64_t s = 4, rows = per_sample ? s * b : s;
          const at::Tensor angles = at::arange(rows * half, at::kDouble).view({rows, half}) * 0.37,
                           cos = angles.cos(), sin = angles.sin();
          const at::Tensor x = random_input({s, b, 2, 8});
          EXPECT_LT(difference(apply_rotary(x, cos, sin, interleaved).detach(),
                               textbook(x, cos, sin, interleaved)),
                    1e-15);
          check_gradients([&] { return weighted_sum(apply_rotary(x, cos, sin, interleaved)); }, {x},
                          nullptr);
        }
      }
    }
  }
}

/// Inputs and incoming gradients may have other memory layouts than [s, b, n, d].
TEST(RotaryGradient, AnyStrides) {
  for (const std::int64_t b : {1, 2}) {
    const std::int64_t s = 3;
    const at::Tensor angles = at::arange(s * 2, at::kDouble).view({s, 2}) * 0.37,
                     cos = angles.cos(), sin = angles.sin();
    const at::Tensor heads_first = random_input({b, 2, s, 4}),
                     samples_first = random_input({b, s, 2, 4}),
                     fused = random_input({s, b, 2, 3, 4});
    const struct {
      const char* name;
      at::Tensor leaf;
      std::function<at::Tensor()> view;
    } layouts[] = {{"[b, n, s, d]", heads_first,
                    [&] {
                      return heads_first.permute({2, 0, 1, 3});
                    }},
                   {"[b, s, n, d]", samples_first,
                    [&] {
                      return samples_first.permute({1, 0, 2, 3});
                    }},
                   {"slice", fused, [&] { return fused.select(3, 1); }}};
    for (const auto& [name, leaf, view] : layouts) {
      SCOPED_TRACE(std::string(name) + " of " + std::to_string(b) + " samples");
      EXPECT_LT(difference(apply_rotary(view(), cos, sin, false).detach(),
                           textbook(view(), cos, sin, false)),
                1e-15);
      check_gradients(
          [&] {
            return weighted_sum(
                apply_rotary(view(), cos, sin, false).permute({1, 2, 0, 3}).contiguous());
          },
          {leaf}, nullptr);
    }
  }
}

/// Compares the parts of the fused projection with slices and the textbook rotation, and checks
/// their single mixed gradient.
TEST(RotaryGradient, SplitOfTheFusedProjection) {
  const std::int64_t s = 3, b = 2, d = 6;
  const at::Tensor angles = at::arange(s * 2, at::kDouble).view({s, 2}) * 0.37;
  for (const std::int64_t groups : {1, 2}) {
    for (const std::int64_t r : {1, 3}) {
      for (const bool rotates : {false, true}) {
        for (const bool interleaved : {false, true}) {
          const Rotation rotation{angles.cos(), angles.sin(), interleaved};
          const at::Tensor mixed = random_input({s, b, groups * (r + 2) * d}),
                           grouped = mixed.detach().view({s, b, groups, r + 2, d});
          const auto expected = [&](const at::Tensor& x) {
            const at::Tensor heads = x.reshape({s, b, -1, d});
            return rotates ? textbook(heads, rotation.cos, rotation.sin, interleaved) : heads;
          };
          const auto split = [&] {
            return split_query_key_value(mixed, groups, d, rotates ? &rotation : nullptr);
          };
          const QueryKeyValue got = split();
          EXPECT_LT(difference(got.q.detach(), expected(grouped.narrow(3, 0, r))), 1e-15);
          EXPECT_LT(difference(got.k.detach(), expected(grouped.select(3, r))), 1e-15);
          EXPECT_TRUE(at::equal(got.v.detach(), grouped.select(3, r + 1)));
          check_gradients(
              [&] {
                const QueryKeyValue parts = split();
                return weighted_sum(parts.q.sin()) + weighted_sum(parts.k) * 2 +
                       weighted_sum(parts.v.permute({1, 2, 0, 3}).square());
              },
              {mixed}, nullptr);
          check_gradients([&] { return weighted_sum(split().k); }, {mixed}, nullptr);
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatron
