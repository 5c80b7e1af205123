// Compares whole GEMMs with float64 in every orientation and storage type. They give the same bits
// however the work is cut, and whatever the other rows of a batch are.
#include "kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage.h"

namespace megatron::kernels {
namespace {

struct GemmCase {
  Type type = Type::f32, out_type = Type::f32;
  std::int64_t m = 1, n = 1, k = 1;
  bool a_transposed = false, b_transposed = false, accumulate = false, with_bias = false;
  /// Numbers between two lines of a. With 1, 16-bit rows cannot be read in place; with 2 they can.
  std::int64_t a_gap = 1;
};

/// Operands whose lines are longer than needed.
struct Operands {
  GemmCase p;
  std::int64_t a_line, b_line, out_line;
  Storage a, b, bias, out;

  explicit Operands(const GemmCase& gemm)
      : p(gemm),
        a_line((p.a_transposed ? p.m : p.k) + p.a_gap),
        b_line((p.b_transposed ? p.k : p.n) + 2),
        out_line(p.n + 3),
        a(numbers(p.type, static_cast<std::size_t>((p.a_transposed ? p.k : p.m) * a_line), 1)),
        b(numbers(p.type, static_cast<std::size_t>((p.b_transposed ? p.n : p.k) * b_line), 2)),
        bias(numbers(p.type, static_cast<std::size_t>(p.n), 3)),
        out(numbers(p.out_type, static_cast<std::size_t>(p.m * out_line), 4)) {}

  double a_at(std::int64_t i, std::int64_t d) const {
    return a[static_cast<std::size_t>(p.a_transposed ? d * a_line + i : i * a_line + d)];
  }
  double b_at(std::int64_t d, std::int64_t j) const {
    return b[static_cast<std::size_t>(p.b_transposed ? j * b_line + d : d * b_line + j)];
  }

  GemmArguments arguments() {
    return {.a = a.data(),
            .b = b.data(),
            .type = p.type,
            .a_row_stride = p.a_transposed ? 1 : a_line,
            .a_depth_stride = p.a_transposed ? a_line : 1,
            .b_depth_stride = p.b_transposed ? 1 : b_line,
            .b_column_stride = p.b_transposed ? b_line : 1,
            .out = out.data(),
            .out_type = p.out_type,
            .out_stride = out_line,
            .bias = p.with_bias ? bias.data() : nullptr,
            .m = p.m,
            .n = p.n,
            .k = p.k,
            .accumulate = p.accumulate};
  }
};

void run(const GemmArguments& arguments, const GemmPlan& plan, bool backwards = false) {
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(64, static_cast<std::size_t>((plan.workspace_bytes + 63) / 64 * 64)),
      std::free);
  for (std::int64_t u = 0; u < plan.units(); ++u) {
    const std::int64_t unit = backwards ? plan.units() - 1 - u : u;
    run_gemm(arguments, plan, unit, unit + 1, workspace.get());
  }
}

void run(const GemmArguments& arguments, std::int64_t threads, bool backwards = false) {
  run(arguments, plan_gemm(arguments, threads), backwards);
}

/// Cuts the depth of a plan into passes.
GemmPlan in_passes(GemmPlan plan) {
  plan.passes = (plan.steps_each * plan.passes + kDepthBlockSteps - 1) / kDepthBlockSteps;
  plan.steps_each = kDepthBlockSteps;
  plan.workspace_bytes += 4 * (plan.rows_each + 128) * plan.panels_each * kPanelColumns;
  return plan;
}

void expect_equal_to_float64(const GemmCase& gemm, bool cuts_depth = false) {
  Operands operands(gemm);
  const Storage before = operands.out;
  const GemmPlan plan = plan_gemm(operands.arguments(), 3);
  run(operands.arguments(), cuts_depth ? in_passes(plan) : plan);
  const double epsilon = gemm.out_type == Type::f32    ? 0x1p-23
                         : gemm.out_type == Type::bf16 ? 0x1p-8
                                                       : 0x1p-11;
  for (std::int64_t i = 0; i < gemm.m; ++i) {
    for (std::int64_t j = 0; j < operands.out_line; ++j) {
      const auto index = static_cast<std::size_t>(i * operands.out_line + j);
      if (j >= gemm.n) {
        ASSERT_EQ(operands.out[index], before[index]) << "written past a row";
        continue;
      }
      double expected = (gemm.accumulate ? before[index] : 0) +
                        (gemm.with_bias ? operands.bias[static_cast<std::size_t>(j)] : 0),
             size = 1;
      for (std::int64_t d = 0; d < gemm.k; ++d) {
        expected += operands.a_at(i, d) * operands.b_at(d, j);
        size += std::abs(operands.a_at(i, d) * operands.b_at(d, j));
      }
      const double tolerance = 0x1p-23 * std::sqrt(static_cast<double>(gemm.k)) * size +
                               epsilon * (1 + std::abs(expected));
      ASSERT_NEAR(operands.out[index], expected, tolerance)
          << gemm.m << "×" << gemm.n << "×" << gemm.k << " row " << i << " column " << j;
    }
  }
}

TEST(Gemm, EqualsFloat64InEveryOrientationAndStorage) {
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    for (const Type out : {Type::f32, type}) {
      for (int way = 0; way < 16; ++way) {
        GemmCase gemm{.type = type,
                      .out_type = out,
                      .a_transposed = (way & 1) != 0,
                      .b_transposed = (way & 2) != 0,
                      .accumulate = (way & 4) != 0,
                      .with_bias = (way & 8) != 0};
        for (const auto& [m, n, k] :
             {std::array<std::int64_t, 3>{1, 1, 1}, {13, 33, 7}, {50, 70, 129}}) {
          gemm.m = m;
          gemm.n = n;
          gemm.k = k;
          expect_equal_to_float64(gemm);
        }
      }
      expect_equal_to_float64({.type = type, .out_type = out, .m = 101, .n = 65, .k = 1100});
      expect_equal_to_float64(
          {.type = type, .out_type = out, .m = 101, .n = 65, .k = 1100, .a_gap = 2});
      expect_equal_to_float64({.type = type,
                               .out_type = out,
                               .m = 130,
                               .n = 40,
                               .k = 600,
                               .a_transposed = true,
                               .b_transposed = true});
    }
  }
}

/// The panels of these depths do not stay in the cache together.
TEST(Gemm, DeepGemmsEqualFloat64) {
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    for (const Type out : {Type::f32, type}) {
      for (const bool accumulate : {false, true}) {
        GemmCase gemm{.type = type,
                      .out_type = out,
                      .m = 61,
                      .n = 70,
                      .k = 5001,
                      .accumulate = accumulate,
                      .with_bias = true};
        expect_equal_to_float64(gemm);
        expect_equal_to_float64(gemm, /*cuts_depth=*/true);
      }
    }
  }
}

TEST(Gemm, PassesChangeNoBit) {
  for (const Type type : {Type::f32, Type::bf16}) {
    const GemmCase gemm{
        .type = type, .out_type = type, .m = 61, .n = 70, .k = 1700, .with_bias = true};
    Operands at_once(gemm), cut(gemm);
    const GemmPlan plan = plan_gemm(at_once.arguments(), 1);
    ASSERT_EQ(plan.passes, 1);
    run(at_once.arguments(), plan);
    run(cut.arguments(), in_passes(plan));
    EXPECT_EQ(cut.out, at_once.out);
  }
}

/// Lines of 4,096 bytes are copied. Other lines are read in place if a step of four bytes begins at
/// each of them. Lines along a are transposed.
TEST(Gemm, WhereRowsAreReadChangesNoBit) {
  for (const Type type : {Type::f32, Type::bf16}) {
    const GemmCase copied{.type = type,
                          .out_type = type,
                          .m = 101,
                          .n = 70,
                          .k = 700,
                          .with_bias = true,
                          .a_gap = (type == Type::f32 ? 1024 : 2048) - 700};
    Operands one(copied);
    run(one.arguments(), 1);
    for (const auto& [gap, transposed] :
         {std::pair<std::int64_t, bool>{1, false}, {2, false}, {1, true}}) {
      GemmCase gemm = copied;
      gemm.a_gap = gap;
      gemm.a_transposed = transposed;
      Operands other(gemm);
      for (std::int64_t i = 0; i < gemm.m; ++i) {
        for (std::int64_t d = 0; d < gemm.k; ++d)
          other.a.set(
              static_cast<std::size_t>(transposed ? d * other.a_line + i : i * other.a_line + d),
              one.a_at(i, d));
      }
      run(other.arguments(), 1);
      EXPECT_EQ(other.out, one.out) << "gap " << gap << (transposed ? ", transposed" : "");
    }
  }
}

TEST(Gemm, ThreadsAndOrderOfUnitsChangeNoBit) {
  for (const Type type : {Type::f32, Type::bf16}) {
    for (const bool transposed : {false, true}) {
      const GemmCase gemm{.type = type,
                          .out_type = type,
                          .m = 211,
                          .n = 300,
                          .k = 700,
                          .a_transposed = transposed,
                          .with_bias = true};
      Operands alone(gemm);
      run(alone.arguments(), 1);
      for (const std::int64_t threads : {2, 5, 16, 64}) {
        Operands shared(gemm);
        run(shared.arguments(), threads, /*backwards=*/true);
        EXPECT_EQ(shared.out, alone.out) << threads << " threads";
      }
    }
  }
}

TEST(Gemm, ARowDoesNotDependOnItsBatch) {
  for (const Type type : {Type::f32, Type::bf16}) {
    const GemmCase gemm{
        .type = type, .out_type = type, .m = 40, .n = 90, .k = 1300, .b_transposed = true};
    Operands all(gemm);
    run(all.arguments(), 2);
    for (const std::int64_t first : {0, 7, 39}) {
      for (const std::int64_t rows : {1, 3, 17}) {
        if (first + rows > gemm.m) continue;
        Operands some(gemm);
        GemmArguments arguments = some.arguments();
        arguments.a = static_cast<const char*>(arguments.a) +
                      first * some.a_line * (type == Type::f32 ? 4 : 2);
        arguments.m = rows;
        run(arguments, 2);
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < gemm.n; ++j) {
            ASSERT_EQ(some.out[static_cast<std::size_t>(i * some.out_line + j)],
                      all.out[static_cast<std::size_t>((first + i) * all.out_line + j)])
                << "row " << first + i << " among " << rows;
          }
        }
      }
    }
  }
}

/// Returns the weight [n, k] with its whole panels packed in place.
Storage packed_weight(const Storage& weight, std::int64_t k, std::int64_t columns) {
  Storage packed = weight;
  const std::int64_t bytes = k * (weight.type() == Type::f32 ? 4 : 2);
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(64, static_cast<std::size_t>((kPanelColumns * bytes + 63) / 64 * 64)),
      std::free);
  for (std::int64_t c = 0; c < columns; c += kPanelColumns)
    pack_in_place(weight.type(), static_cast<char*>(packed.data()) + c * bytes, k, workspace.get());
  return packed;
}

/// Multiplies m rows by the first n columns of a weight, packed and unpacked.
void expect_packing_changes_no_bit(const GemmCase& gemm, std::int64_t weight_columns) {
  Operands operands(gemm);
  const Storage weight = numbers(gemm.type, static_cast<std::size_t>(weight_columns * gemm.k), 7),
                before = operands.out;
  const std::int64_t columns = columns_packed_in_place(gemm.type, weight_columns, gemm.k);
  const Storage packed = packed_weight(weight, gemm.k, columns);
  GemmArguments arguments = operands.arguments();
  arguments.b_column_stride = gemm.k;
  arguments.b = weight.data();
  run(arguments, 2);
  const Storage expected = operands.out;
  arguments.b = packed.data();
  arguments.b_packed_columns = columns;
  for (const std::int64_t threads : {1, 3}) {
    operands.out = before;
    arguments.out = operands.out.data();
    run(arguments, threads, /*backwards=*/true);
    ASSERT_EQ(operands.out, expected)
        << gemm.m << "×" << gemm.n << " of " << weight_columns << "×" << gemm.k << ", type "
        << static_cast<int>(gemm.type) << ", " << columns << " columns packed";
  }
}

TEST(Gemm, AWeightPackedInPlaceChangesNoBit) {
  std::uint64_t state = 1;
  const auto draw = [&](std::int64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(below));
  };
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    for (std::int64_t m = 1; m <= 70; ++m) {
      const std::int64_t weight_columns = 1 + draw(300);
      expect_packing_changes_no_bit({.type = type,
                                     .out_type = draw(2) == 0 ? Type::f32 : type,
                                     .m = m,
                                     .n = weight_columns - draw(2) * draw(weight_columns),
                                     .k = m % 4 == 0 ? 1 + draw(900) : 32 * (1 + draw(30)),
                                     .b_transposed = true,
                                     .accumulate = draw(4) == 0,
                                     .with_bias = draw(2) == 0},
                                    weight_columns);
    }
  }
}

/// The rows, or the panels, take several units and passes.
TEST(Gemm, AWeightPackedInPlaceChangesNoBitOfLargeGemms) {
  for (const Type type : {Type::f32, Type::bf16}) {
    const GemmCase gemm{.type = type, .out_type = type, .b_transposed = true, .with_bias = true};
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{300, 200, 4096}, {1, 300, 9728}, {1100, 70, 320}}) {
      GemmCase one = gemm;
      one.m = m;
      one.n = n;
      one.k = k;
      expect_packing_changes_no_bit(one, n);
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
