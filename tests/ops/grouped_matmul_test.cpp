// Grouped GEMMs against one GEMM per group, and against a dense formula in float64.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/base/error.h"
#include "megatron/ops/matmul.h"

namespace megatron {
namespace {

using testing::HasSubstr;

at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed, at::ScalarType type) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed),
                   at::TensorOptions(at::kDouble))
      .to(type);
}

struct Case {
  std::vector<std::int64_t> rows;
  std::int64_t k, n;
  std::int64_t total() const { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }
};

/// Uneven groups, empty groups, one token, all tokens in one group, more groups than tokens, and
/// sizes beyond the blocks of a GEMM.
const std::vector<Case> kCases{
    {{5, 0, 1, 17, 64, 3}, 24, 40}, {{0, 0, 1}, 7, 3},
    {{0, 300, 0, 0}, 65, 33},       {{0, 0}, 8, 8},
    {{1, 1, 0, 1, 1, 0, 1}, 16, 1}, {std::vector<std::int64_t>(40, 9), 31, 50},
    {{130, 257}, 700, 96}};

class GroupedMatmul : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  /// The result types that the operands allow.
  std::vector<at::ScalarType> result_types() const {
    if (!c10::isReducedFloatingType(type())) return {type()};
    return {type(), at::kFloat};
  }
  /// Our kernels give the same bits; the library rounds by a tensor's place in memory.
  void expect_same(const at::Tensor& actual, const at::Tensor& expected) const {
    if (expected.numel() == 0 || uses_own_gemm(type())) {
      EXPECT_TRUE(at::equal(actual, expected));
      return;
    }
    const double tolerance = type() == at::kDouble ? 1e-13 : 1e-2;
    const at::Tensor distance = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max();
    EXPECT_LE(distance.item<double>(),
              tolerance * expected.to(at::kDouble).abs().max().item<double>());
  }
};

TEST_P(GroupedMatmul, EqualsOneGemmPerGroup) {
  for (const Case& c : kCases) {
    const auto groups = static_cast<std::int64_t>(c.rows.size());
    const at::Tensor a = numbers({c.total(), c.k}, 1, type()),
                     weights = numbers({groups, c.n, c.k}, 2, type()),
                     bias = numbers({groups, c.n}, 3, type());
    for (const at::Tensor& b : {weights.transpose(1, 2), weights.transpose(1, 2).contiguous()}) {
      for (const at::ScalarType result : result_types()) {
        const at::Tensor plain = grouped_matmul(a, b, c.rows, result),
                         with_bias = grouped_matmul(a, b, c.rows, result, bias);
        ASSERT_EQ(plain.scalar_type(), result);
        std::int64_t first = 0;
        for (std::int64_t e = 0; e < groups; ++e) {
          const std::int64_t count = c.rows[static_cast<std::size_t>(e)];
          const at::Tensor own = a.narrow(0, first, count);
          expect_same(plain.narrow(0, first, count), matmul(own, b[e], result));
          expect_same(with_bias.narrow(0, first, count), matmul(own, b[e], result, bias[e]));
          first += count;
        }
      }
    }
  }
}

TEST_P(GroupedMatmul, OverRowsEqualsOneGemmPerGroup) {
  for (const Case& c : kCases) {
    const auto groups = static_cast<std::int64_t>(c.rows.size());
    const at::Tensor x = numbers({c.total(), c.k}, 1, type()),
                     dy = numbers({c.total(), c.n}, 2, type());
    for (const at::ScalarType result : result_types()) {
      for (const bool accumulate : {false, true}) {
        const at::Tensor before = numbers({groups, c.n, c.k}, 3, result);
        at::Tensor out = before.clone();
        grouped_matmul_over_rows_out(out, dy, x, c.rows, accumulate);
        std::int64_t first = 0;
        for (std::int64_t e = 0; e < groups; ++e) {
          const std::int64_t count = c.rows[static_cast<std::size_t>(e)];
          at::Tensor expected = accumulate ? before[e].clone() : at::zeros({c.n, c.k}, result);
          if (count > 0)
            matmul_out(expected, dy.narrow(0, first, count).t(), x.narrow(0, first, count),
                       accumulate);
          SCOPED_TRACE("group " + std::to_string(e) + " of " + std::to_string(count) + " rows");
          expect_same(out[e], expected);
          first += count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GroupedMatmul,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

/// Every row times every matrix, of which a mask keeps the row's own.
TEST(GroupedMatmulFormula, EqualsAMaskedDenseProduct) {
  const std::vector<std::int64_t> rows{4, 0, 9, 2};
  const at::Tensor a = numbers({15, 6}, 1, at::kDouble), b = numbers({4, 6, 5}, 2, at::kDouble),
                   dy = numbers({15, 5}, 3, at::kDouble);
  const at::Tensor groups = at::repeat_interleave(at::arange(4), at::tensor(rows));
  const at::Tensor mask = at::one_hot(groups, 4).to(at::kDouble);
  const at::Tensor expected = at::einsum("te,tk,ekn->tn", {mask, a, b}),
                   gradient = at::einsum("te,tk,tn->ekn", {mask, a, dy});
  at::Tensor out = at::zeros({4, 6, 5}, at::kDouble);
  grouped_matmul_over_rows_out(out, a, dy, rows, /*accumulate=*/true);
  EXPECT_LT((grouped_matmul(a, b, rows, at::kDouble) - expected).abs().max().item<double>(), 1e-13);
  EXPECT_LT((out - gradient).abs().max().item<double>(), 1e-13);
}

TEST(Matmul, ReadsOneElementThatIsExpandedToAColumn) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    // The kernel must not read the elements behind the one that is repeated.
    const at::Tensor one = at::arange(1, 9, at::kFloat).to(type).view({8, 1}).narrow(0, 1, 1),
                     row = at::arange(3, at::kFloat).to(type).view({1, 3});
    const at::Tensor y = matmul(one.expand({5, 1}), row, type);
    EXPECT_TRUE(at::equal(y, row.mul(2).expand({5, 3}))) << y;
    const at::Tensor sum = matmul(row, one.expand({3, 1}), type);
    EXPECT_EQ(sum.item<double>(), 6) << type;
  }
}

TEST(Matmul, RefusesMixedTypes) {
  const at::Tensor a = at::zeros({2, 3}), b = at::zeros({3, 4}, at::kBFloat16);
  EXPECT_THROW(matmul(a, b, at::kFloat), InternalError);
  EXPECT_THROW(matmul(a, a.t(), at::kBFloat16), InternalError);
  EXPECT_THROW(matmul(a, a.t(), at::kFloat, at::zeros({2}, at::kBFloat16)), InternalError);
}

TEST(GroupedMatmulFormula, RefusesRowCountsThatDoNotFit) {
  const at::Tensor a = at::zeros({4, 2}), b = at::zeros({2, 2, 3});
  const auto failing = [&](const std::vector<std::int64_t>& rows) -> std::string {
    try {
      grouped_matmul(a, b, rows, at::kFloat);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(failing({3, 2}), HasSubstr("do not sum to 4"));
  EXPECT_THAT(failing({5, -1}), HasSubstr("do not sum to 4"));
  EXPECT_THAT(failing({4}), HasSubstr("2 groups with 1 row counts"));
}

}  // namespace
}  // namespace megatron
