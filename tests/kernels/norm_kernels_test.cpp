// Compares LayerNorm and RMSNorm with float64 formulas for every pair of types, ragged sizes and
// rows far from zero. Every division of the rows and every instruction set gives the same bits.
#include "kernels/cpu/norm_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/column_sums.h"
#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(NormKernels, norm_kernels, portable, MEGATRON_X86_ISAS(avx2, avx512))

namespace {

struct Case {
  TypePair types;
  bool centred;
  std::int64_t rows, columns;
  std::size_t count() const { return static_cast<std::size_t>(rows * columns); }
  Type wide() const { return compute_type(types.a); }
};

template <class Run>
void for_each_case(const Run& run) {
  for (const TypePair types : kTypePairs) {
    for (const bool centred : {true, false}) {
      for (const std::int64_t columns : {7, 16, 257})
        run(Case{types, centred, columns == 7 ? 70 : 33, columns});
    }
  }
}

/// Rows of x lie around 3, several times their deviation, where sums of squares would lose the
/// digits of the variance.
struct Inputs {
  explicit Inputs(const Case& c)
      : x(numbers(c.types.a, c.count(), 1)),
        dy(numbers(c.types.b, c.count(), 2)),
        residual_grad(numbers(c.types.a, c.count(), 3)),
        weight(numbers(c.wide(), static_cast<std::size_t>(c.columns), 4)),
        bias(numbers(c.wide(), static_cast<std::size_t>(c.columns), 5)) {
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] + 3);
  }
  Storage x, dy, residual_grad, weight, bias;
};

struct Results {
  explicit Results(const Case& c)
      : y(c.types.b, c.count()),
        mean(c.wide(), static_cast<std::size_t>(c.rows)),
        rstd(mean),
        dx(c.types.a, c.count()),
        weight_blocks(c.wide(), static_cast<std::size_t>(row_blocks(c.rows) * c.columns)),
        bias_blocks(weight_blocks),
        dweight(c.wide(), static_cast<std::size_t>(c.columns)),
        dbias(dweight) {}
  Storage y, mean, rstd, dx, weight_blocks, bias_blocks, dweight, dbias;
  bool operator==(const Results&) const = default;
};

constexpr double kEpsilon = 1e-5, kOffset = 0.5;

Results run(const Case& c, const Inputs& in, const NormKernels& kernels, bool passes,
            std::int64_t share) {
  Results r(c);
  const NormArguments forward{.x = in.x.data(),
                              .weight = in.weight.data(),
                              .bias = c.centred ? in.bias.data() : nullptr,
                              .y = r.y.data(),
                              .mean = c.centred ? r.mean.data() : nullptr,
                              .rstd = r.rstd.data(),
                              .x_type = c.types.a,
                              .y_type = c.types.b,
                              .rows = c.rows,
                              .columns = c.columns,
                              .epsilon = kEpsilon,
                              .offset = kOffset};
  for (std::int64_t row = 0; row < c.rows; row += share)
    kernels.forward(forward, row, std::min(c.rows, row + share));
  const NormBackwardArguments backward{.dy = in.dy.data(),
                                       .x = in.x.data(),
                                       .weight = in.weight.data(),
                                       .mean = c.centred ? r.mean.data() : nullptr,
                                       .rstd = r.rstd.data(),
                                       .residual_grad = passes ? in.residual_grad.data() : nullptr,
                                       .dx = r.dx.data(),
                                       .weight_blocks = r.weight_blocks.data(),
                                       .bias_blocks = c.centred ? r.bias_blocks.data() : nullptr,
                                       .x_type = c.types.a,
                                       .y_type = c.types.b,
                                       .rows = c.rows,
                                       .columns = c.columns,
                                       .offset = kOffset};
  const std::int64_t blocks = row_blocks(c.rows);
  for (std::int64_t block = 0; block < blocks; block += share)
    kernels.backward(backward, block, std::min(blocks, block + share));
  add_row_blocks({r.weight_blocks.data(), r.dweight.data(), c.wide(), blocks, c.columns}, 0,
                 c.columns);
  if (c.centred)
    add_row_blocks({r.bias_blocks.data(), r.dbias.data(), c.wide(), blocks, c.columns}, 0,
                   c.columns);
  return r;
}

/// Tolerance for sums of `columns` numbers around 3 in the computing type.
double slack(const Case& c) {
  return 16 * std::sqrt(static_cast<double>(c.columns)) * epsilon_of(c.wide());
}

void check_against_formulas(const Case& c, const Inputs& in, const Results& got, bool passes) {
  const auto columns = static_cast<std::size_t>(c.columns);
  std::vector<double> dweight(columns), dbias(columns);
  for (std::size_t first = 0; first < c.count(); first += columns) {
    const double n = static_cast<double>(columns);
    double mean = 0, squares = 0, level = 0, pull = 0;
    for (std::size_t k = 0; c.centred && k < columns; ++k) mean += in.x[first + k] / n;
    for (std::size_t k = 0; k < columns; ++k)
      squares += (in.x[first + k] - mean) * (in.x[first + k] - mean) / n;
    const double rstd = 1 / std::sqrt(squares + kEpsilon);
    const auto normalised = [&](std::size_t k) { return (in.x[first + k] - mean) * rstd; };
    const auto g = [&](std::size_t k) { return in.dy[first + k] * (in.weight[k] + kOffset); };
    for (std::size_t k = 0; k < columns; ++k) {
      if (c.centred) level += g(k) / n;
      pull += g(k) * normalised(k) / n;
      dweight[k] += in.dy[first + k] * normalised(k);
      dbias[k] += in.dy[first + k];
    }
    for (std::size_t k = 0; k < columns; ++k) {
      const double y = normalised(k) * (in.weight[k] + kOffset) + (c.centred ? in.bias[k] : 0);
      ASSERT_NEAR(got.y[first + k], y, epsilon_of(c.types.b) * std::abs(y) + slack(c));
      const double dx =
          rstd * (g(k) - level - normalised(k) * pull) + (passes ? in.residual_grad[first + k] : 0);
      ASSERT_NEAR(got.dx[first + k], dx,
                  epsilon_of(c.types.a) * std::abs(dx) + slack(c) * std::max(1.0, rstd));
    }
  }
  for (std::size_t k = 0; k < columns; ++k) {
    ASSERT_NEAR(got.dweight[k], dweight[k], static_cast<double>(c.rows) * slack(c));
    if (c.centred) {
      ASSERT_NEAR(got.dbias[k], dbias[k], static_cast<double>(c.rows) * slack(c));
    }
  }
}

TEST(NormKernels, AgreeWithTheFormulas) {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    for (const bool passes : {false, true})
      check_against_formulas(c, in, run(c, in, norm_kernels(), passes, c.rows), passes);
  });
}

TEST(NormKernels, DependNeitherOnSharesNorOnTheInstructionSet) {
  for_each_case([](const Case& c) {
    const Inputs in(c);
    const Results expected = run(c, in, norm_kernels(), true, c.rows);
    EXPECT_EQ(run(c, in, norm_kernels(), true, 1), expected);
    for (const Variant<NormKernels>& variant : norm_kernels_variants())
      EXPECT_EQ(run(c, in, variant.kernels, true, c.rows), expected) << variant.name;
  });
}

}  // namespace
}  // namespace megatron::kernels
