// Compares cross entropy of rows with float64 formulas, and checks that it gives the same bits on
// every instruction set, at every position and with every stride.
#include "kernels/cpu/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(CrossEntropyKernels, cross_entropy_kernels, portable,
                         MEGATRON_X86_ISAS(avx2, avx512))

namespace {

constexpr std::int64_t kSizes[] = {1, 15, 16, 17, 63, 64, 100, 1023, 1024, 1025, 1100, 5003};

struct Row {
  double lse, label_logit;
};

Row reference(const Storage& logits, std::size_t first, std::int64_t columns, std::int64_t label) {
  long double sum = 0, largest = -std::numeric_limits<long double>::infinity();
  for (std::int64_t c = 0; c < columns; ++c)
    largest = std::max<long double>(largest, logits[first + static_cast<std::size_t>(c)]);
  for (std::int64_t c = 0; c < columns; ++c)
    sum +=
        std::exp(static_cast<long double>(logits[first + static_cast<std::size_t>(c)]) - largest);
  return {static_cast<double>(largest + std::log(sum)),
          label >= 0 && label < columns ? logits[first + static_cast<std::size_t>(label)] : 0};
}

/// Logits in (−20, 20) that rise or fall, so that the largest one changes from block to block or
/// never does.
Storage logits_of(Type type, std::int64_t rows, std::int64_t stride) {
  Storage logits = numbers(type, static_cast<std::size_t>(rows * stride), 11, 8);
  for (std::int64_t i = 0; i < rows * stride; ++i) {
    const double place = static_cast<double>(i % stride) / static_cast<double>(stride) - 0.5;
    logits.set(static_cast<std::size_t>(i),
               logits[static_cast<std::size_t>(i)] + (i / stride % 2 == 0 ? 24 : -24) * place);
  }
  return logits;
}

struct Problem {
  static constexpr std::int64_t kRows = 6, kFirst = 100;

  Problem(Type type, std::int64_t number_of_columns, std::int64_t padding)
      : columns(number_of_columns),
        stride(number_of_columns + padding),
        logits(logits_of(type, kRows, stride)),
        lse(type, kRows),
        label_logit(type, kRows),
        mask(type, kRows),
        labels{kFirst,     kFirst + columns - 1, kFirst + columns / 2,
               kFirst - 1, kFirst + columns,     0} {
    for (std::size_t row = 0; const double value : {1.0, 0.25, 0.0, 1.0, 1.0, 2.0})
      mask.set(row++, value);
  }

  CrossEntropyRows rows() const {
    return {logits.data(), logits.type(), stride, columns, kFirst, labels.data()};
  }
  void measure(const CrossEntropyKernels& kernels = cross_entropy_kernels()) {
    kernels.statistics({rows(), lse.data(), label_logit.data()}, 0, 2);
    kernels.statistics({rows(), lse.data(), label_logit.data()}, 2, kRows);
  }
  CrossEntropyGradient gradient_into(Storage& gradient, std::int64_t gradient_stride) const {
    return {rows(),          lse.data(),      mask.data(),    kScale,
            gradient.data(), gradient.type(), gradient_stride};
  }

  static constexpr double kScale = 3.7;
  std::int64_t columns, stride;
  Storage logits, lse, label_logit, mask;
  std::vector<std::int64_t> labels;
};

TEST(CrossEntropy, StatisticsAgreeWithFloat64) {
  for (const Type type : {Type::f32, Type::f64}) {
    for (const std::int64_t columns : kSizes) {
      Problem problem(type, columns, 3);
      problem.measure();
      for (std::int64_t row = 0; row < Problem::kRows; ++row) {
        const auto r = static_cast<std::size_t>(row);
        const Row expected =
            reference(problem.logits, static_cast<std::size_t>(row * problem.stride), columns,
                      problem.labels[r] - Problem::kFirst);
        EXPECT_NEAR(problem.lse[r], expected.lse,
                    2 * epsilon_of(type) * std::max(1.0, std::abs(expected.lse)))
            << columns;
        EXPECT_EQ(problem.label_logit[r], expected.label_logit);
      }
    }
  }
}

TEST(CrossEntropy, GradientAgreesWithFloat64) {
  const TypePair pairs[] = {{Type::f64, Type::f64},
                            {Type::f32, Type::f32},
                            {Type::f32, Type::bf16},
                            {Type::f32, Type::f16}};
  for (const TypePair types : pairs) {
    for (const std::int64_t columns : kSizes) {
      Problem problem(types.a, columns, 5);
      problem.measure();
      const std::int64_t stride = columns + 2;
      Storage gradient(types.b, static_cast<std::size_t>(Problem::kRows * stride));
      const Storage before = gradient;
      cross_entropy_kernels().gradient(problem.gradient_into(gradient, stride), 0, Problem::kRows);
      for (std::int64_t row = 0; row < Problem::kRows; ++row) {
        const auto r = static_cast<std::size_t>(row);
        const double factor = problem.mask[r] * Problem::kScale;
        for (std::int64_t c = 0; c < stride; ++c) {
          const auto i = static_cast<std::size_t>(row * stride + c);
          if (c >= columns) {
            ASSERT_EQ(gradient[i], before[i]) << "written past the row";
            continue;
          }
          const double p = std::exp(
              problem.logits[static_cast<std::size_t>(row * problem.stride + c)] - problem.lse[r]);
          const double expected = (p - (problem.labels[r] - Problem::kFirst == c ? 1 : 0)) * factor;
          const double slack = (4 * epsilon_of(types.a) * std::max(p, 1e-2) +
                                epsilon_of(types.b) * std::abs(expected / factor)) *
                               factor;
          ASSERT_NEAR(gradient[i], expected,
                      factor == 0 ? 0 : slack + (types.b == Type::f16 ? 0x1p-25 : 0))
              << columns << " columns, column " << c;
        }
      }
    }
  }
}

TEST(CrossEntropy, GradientMayLieWhereTheLogitsWere) {
  Problem problem(Type::f32, 1100, 3);
  problem.measure();
  Storage apart(Type::f32, problem.logits.size());
  cross_entropy_kernels().gradient(problem.gradient_into(apart, problem.stride), 0, Problem::kRows);
  const CrossEntropyGradient in_place = problem.gradient_into(problem.logits, problem.stride);
  cross_entropy_kernels().gradient(in_place, 0, Problem::kRows);
  for (std::int64_t row = 0; row < Problem::kRows; ++row) {
    for (std::int64_t c = 0; c < problem.columns; ++c) {
      const auto i = static_cast<std::size_t>(row * problem.stride + c);
      ASSERT_EQ(problem.logits[i], apart[i]);
    }
  }
}

TEST(CrossEntropy, EveryInstructionSetGivesTheSameBits) {
  for (const std::int64_t columns : kSizes) {
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      Problem chosen(Type::f32, columns, 1);
      chosen.measure(cross_entropy_kernels());
      Storage expected(type, chosen.logits.size());
      cross_entropy_kernels().gradient(chosen.gradient_into(expected, chosen.stride), 0,
                                       Problem::kRows);
      for (const auto& [name, kernels] : cross_entropy_kernels_variants()) {
        Problem other(Type::f32, columns, 1);
        other.measure(kernels);
        ASSERT_EQ(other.lse, chosen.lse) << name;
        Storage gradient(type, other.logits.size());
        kernels.gradient(other.gradient_into(gradient, other.stride), 0, Problem::kRows);
        ASSERT_EQ(gradient, expected) << name << ", " << columns << " columns";
      }
    }
  }
}

TEST(CrossEntropy, ARowDoesNotDependOnItsPlace) {
  Problem problem(Type::f32, 1037, 0);
  const auto count = static_cast<std::size_t>(problem.columns);
  std::memcpy(static_cast<float*>(problem.logits.data()) + 3 * count, problem.logits.data(),
              count * sizeof(float));
  problem.measure();
  EXPECT_EQ(problem.lse[3], problem.lse[0]);
}

TEST(CrossEntropy, WhatIsNotFiniteStaysVisible) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const std::size_t place : {0, 700, 1999}) {
      Problem problem(Type::f32, 2000, 0);
      problem.logits.set(place, bad);
      problem.measure();
      EXPECT_FALSE(std::isfinite(problem.lse[0])) << place;
      EXPECT_TRUE(std::isfinite(problem.lse[1]));
    }
  }
  Problem huge(Type::f32, 40, 0);
  for (std::size_t i = 0; i < 40; ++i) huge.logits.set(i, i == 7 ? 3e38 : -3e38);
  huge.measure();
  EXPECT_EQ(huge.lse[0], huge.logits[7]);
}

}  // namespace
}  // namespace megatron::kernels
