// Compares the gated norm, forward and backward, with its formula in float64 for random shapes.
// Every division of the rows and every instruction set gives the same bits.
#include "kernels/cpu/gated_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/cpu/column_sums.h"
#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(GatedNormKernels, gated_norm_kernels, portable,
                         MEGATRON_X86_ISAS(avx2, avx512))

namespace {

constexpr double kEpsilon = 1e-5, kOffset = 0.5;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

struct Case {
  Type type = Type::f32;
  bool shares_weight = false, norm_before_gate = false;
  std::int64_t s = 1, b = 1, groups = 1, group_size = 1;
  std::uint64_t seed = 0;

  std::int64_t rows() const { return s * b; }
  std::int64_t columns() const { return groups * group_size; }
  std::int64_t width() const { return columns() + 5; }  // z is a slice of wider rows
  Type wide() const { return compute_type(type); }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "seed " << c.seed << ", type " << static_cast<int>(c.type) << ", norm first "
             << c.norm_before_gate << ", s " << c.s << ", b " << c.b << ", groups " << c.groups
             << " of " << c.group_size;
}

Case random_case(std::uint64_t seed, Type type) {
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  return {.type = type,
          .shares_weight = up_to(2) == 1,
          .norm_before_gate = up_to(2) == 1,
          .s = up_to(40),
          .b = up_to(2),
          .groups = up_to(4),
          .group_size = up_to(up_to(2) == 1 ? 20 : 100),
          .seed = seed};
}

struct Inputs {
  explicit Inputs(const Case& c)
      : x(numbers(c.type, size(c.rows() * c.columns()), c.seed + 1, 3)),
        z(numbers(c.type, size(c.rows() * c.width()), c.seed + 2, 4)),
        dy(numbers(c.type, x.size(), c.seed + 3)),
        weight(numbers(c.wide(), size(c.shares_weight ? c.group_size : c.columns()), c.seed + 4)) {}
  Storage x, z, dy, weight;
};

struct Results {
  explicit Results(const Case& c)
      : y(c.type, size(c.rows() * c.columns())),
        dx(y),
        dz(y),
        sums(c.wide(), size(row_blocks(c.rows()) * c.columns())) {}
  Storage y, dx, dz, sums;
  bool operator==(const Results&) const = default;
};

Results run(const Case& c, const Inputs& in, const GatedNormKernels& kernels, std::int64_t share) {
  Results r(c);
  const GatedNormArguments arguments{.type = c.type,
                                     .x = {in.x.data(), c.b * c.columns(), c.columns()},
                                     .z = {in.z.data(), c.b * c.width(), c.width()},
                                     .b = c.b,
                                     .rows = c.rows(),
                                     .columns = c.columns(),
                                     .group_size = c.group_size,
                                     .weight = in.weight.data(),
                                     .shares_weight = c.shares_weight,
                                     .norm_before_gate = c.norm_before_gate,
                                     .epsilon = kEpsilon,
                                     .offset = kOffset};
  const GatedNormForwardArguments forward{arguments, r.y.data()};
  const GatedNormBackwardArguments backward{arguments, in.dy.data(), r.dx.data(), r.dz.data(),
                                            r.sums.data()};
  for (std::int64_t row = 0; row < c.rows(); row += share)
    kernels.forward(forward, row, std::min(c.rows(), row + share));
  const std::int64_t blocks = row_blocks(c.rows());
  for (std::int64_t block = 0; block < blocks; block += share)
    kernels.backward(backward, block, std::min(blocks, block + share));
  return r;
}

void check(const Case& c) {
  const Inputs in(c);
  const Results r = run(c, in, gated_norm_kernels(), 3);
  const double slack = c.type == Type::f64 ? 1e-12 : 3e-5, n = static_cast<double>(c.group_size),
               epsilon = epsilon_of(c.type);
  std::vector<double> sums(r.sums.size());
  for (std::int64_t row = 0; row < c.rows(); ++row) {
    for (std::int64_t group = 0; group < c.groups; ++group) {
      const std::int64_t first = group * c.group_size;
      const auto place = [&](std::int64_t i) { return size(row * c.columns() + first + i); };
      const auto z = [&](std::int64_t i) { return in.z[size(row * c.width() + first + i)]; };
      const auto sigmoid = [&](std::int64_t i) { return 1 / (1 + std::exp(-z(i))); };
      const auto gate = [&](std::int64_t i) { return z(i) * sigmoid(i); };
      const auto weight = [&](std::int64_t i) {
        return in.weight[size(c.shares_weight ? i : first + i)] + kOffset;
      };
      const auto h = [&](std::int64_t i) {
        return in.x[place(i)] * (c.norm_before_gate ? 1 : gate(i));
      };
      const auto d = [&](std::int64_t i) {
        return in.dy[place(i)] * (c.norm_before_gate ? gate(i) : 1);
      };
      double squares = 0, dots = 0;
      for (std::int64_t i = 0; i < c.group_size; ++i) squares += h(i) * h(i) / n;
      const double rstd = 1 / std::sqrt(squares + kEpsilon);
      for (std::int64_t i = 0; i < c.group_size; ++i) dots += d(i) * weight(i) * h(i) / n;
      for (std::int64_t i = 0; i < c.group_size; ++i) {
        const std::size_t at = place(i);
        const double normalised = h(i) * rstd, y = normalised * weight(i),
                     dh = rstd * (d(i) * weight(i) - normalised * rstd * dots),
                     slope = sigmoid(i) * (1 + z(i) * (1 - sigmoid(i)));
        const double expected_y = c.norm_before_gate ? y * gate(i) : y,
                     dx = c.norm_before_gate ? dh : dh * gate(i),
                     dz = slope * (c.norm_before_gate ? in.dy[at] * y : dh * in.x[at]);
        const double wide = slack * std::max(1.0, rstd);
        ASSERT_NEAR(r.y[at], expected_y, slack + epsilon * std::abs(expected_y)) << c;
        ASSERT_NEAR(r.dx[at], dx, wide + epsilon * std::abs(dx)) << c;
        ASSERT_NEAR(r.dz[at], dz, wide + epsilon * std::abs(dz)) << c;
        sums[size(row / kRowsPerBlock * c.columns() + first + i)] += d(i) * normalised;
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i)
    ASSERT_NEAR(r.sums[i], sums[i], slack * static_cast<double>(kRowsPerBlock)) << c;
}

TEST(GatedNorm, AgreesWithTheFormula) {
  for (const Type type : {Type::f32, Type::f64, Type::bf16, Type::f16}) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      check(random_case(seed, type));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GatedNorm, DependsNeitherOnSharesNorOnTheInstructionSet) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = random_case(seed, seed % 3 == 0 ? Type::bf16 : Type::f32);
    const Inputs in(c);
    const Results expected = run(c, in, gated_norm_kernels(), 1000);
    EXPECT_EQ(run(c, in, gated_norm_kernels(), 1), expected) << c;
    for (const Variant<GatedNormKernels>& variant : gated_norm_kernels_variants())
      EXPECT_EQ(run(c, in, variant.kernels, 3), expected) << variant.name << ", " << c;
  }
}

}  // namespace
}  // namespace megatron::kernels
