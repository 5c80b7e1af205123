// Compares GEMMs in tile registers with float64 on emulated tiles: whichever operand stays in the
// cache, in one pass over depth or several, with ragged edges. If the CPU has AMX, gemm_test.cpp
// runs the same code on real tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "emulated_tiles.h"
#include "storage.h"

namespace megatron::kernels {
namespace {

struct TileGemmCase {
  std::int64_t m, n, k;
  Type out_type = Type::bf16;
  bool a_across = false, b_across = false, accumulate = false, with_bias = false;
};

/// Returns a plan whose units have `rows` rows and `panels` panels.
GemmPlan plan_of(const TileGemmCase& gemm, std::int64_t rows, std::int64_t panels,
                 std::int64_t steps, bool rows_stay) {
  const auto divide_up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  GemmPlan plan{.row_parts = divide_up(gemm.m, rows),
                .rows_each = rows,
                .column_parts = divide_up(divide_up(gemm.n, kPanelColumns), panels),
                .panels_each = panels,
                .passes = divide_up(divide_up(gemm.k, 32) * 16, steps),
                .steps_each = steps,
                .workspace_bytes = 0,
                .rows_stay = rows_stay};
  const TileWorkspace space = tile_workspace(plan);
  plan.workspace_bytes = space.row_bytes + space.panel_bytes + space.sum_bytes;
  return plan;
}

Storage run(const TileGemmCase& gemm, const Storage& a, const Storage& b, const Storage& bias,
            const Storage& before, const GemmPlan& plan, std::int64_t packed_columns = 0) {
  Storage out = before;
  const GemmArguments g{.a = a.data(),
                        .b = b.data(),
                        .type = Type::bf16,
                        .a_row_stride = gemm.a_across ? 1 : gemm.k,
                        .a_depth_stride = gemm.a_across ? gemm.m : 1,
                        .b_depth_stride = gemm.b_across ? gemm.n : 1,
                        .b_column_stride = gemm.b_across ? 1 : gemm.k,
                        .out = out.data(),
                        .out_type = gemm.out_type,
                        .out_stride = gemm.n + 3,
                        .bias = gemm.with_bias ? bias.data() : nullptr,
                        .m = gemm.m,
                        .n = gemm.n,
                        .k = gemm.k,
                        .accumulate = gemm.accumulate,
                        .b_packed_columns = packed_columns};
  const auto bytes = static_cast<std::size_t>((plan.workspace_bytes + 63) / 64 * 64);
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(64, bytes),
                                                              std::free);
  std::memset(workspace.get(), 0xFF, bytes);
  for (std::int64_t unit = 0; unit < plan.units(); ++unit)
    emulation::run_tile_unit<EmulatedTiles>(g, plan, unit, workspace.get());
  return out;
}

void expect_right(const TileGemmCase& gemm) {
  const auto count = [](std::int64_t x, std::int64_t y) { return static_cast<std::size_t>(x * y); };
  const Storage a = numbers(Type::bf16, count(gemm.m, gemm.k), 1),
                b = numbers(Type::bf16, count(gemm.k, gemm.n), 2),
                bias = numbers(Type::bf16, count(gemm.n, 1), 3),
                before = numbers(gemm.out_type, count(gemm.m, gemm.n + 3), 4);
  const std::int64_t steps = (gemm.k + 31) / 32 * 16;
  const std::vector<GemmPlan> plans = {
      plan_of(gemm, 512, 4, steps, true),
      plan_of(gemm, 96, 1, steps, true),
      plan_of(gemm, 512, 4, steps, false),
      plan_of(gemm, 128, 2, steps, false),
      plan_of(gemm, 512, 2, 128, false),
      [&] {
        GemmArguments g{};
        g.a_depth_stride = gemm.a_across ? gemm.m : 1;
        g.b_depth_stride = gemm.b_across ? gemm.n : 1;
        g.m = gemm.m;
        g.n = gemm.n;
        g.k = gemm.k;
        return plan_tile_gemm(g, 3);
      }(),
  };
  const Storage first = run(gemm, a, b, bias, before, plans.front());
  for (const GemmPlan& plan : plans)
    EXPECT_EQ(run(gemm, a, b, bias, before, plan), first) << "the plan changes a bit";
  if (!gemm.b_across && gemm.k % 32 == 0) {
    Storage packed = b;
    const std::int64_t columns = gemm.n / kPanelColumns * kPanelColumns;
    std::vector<std::uint32_t> panel(static_cast<std::size_t>(gemm.k / 2 * kPanelColumns));
    for (std::int64_t c = 0; c < columns; c += kPanelColumns) {
      char* const lines = static_cast<char*>(packed.data()) + 2 * c * gemm.k;
      emulation::pack_pairs_in_tiles(
          {lines, Type::bf16, 1, gemm.k, gemm.k, kPanelColumns, panel.data(), kPanelColumns});
      std::memcpy(lines, panel.data(), panel.size() * sizeof(std::uint32_t));
    }
    for (const GemmPlan& plan : plans)
      EXPECT_EQ(run(gemm, a, packed, bias, before, plan, columns), first)
          << "packing in place changes a bit";
  }
  const double epsilon = epsilon_of(gemm.out_type);
  for (std::int64_t i = 0; i < gemm.m; ++i) {
    for (std::int64_t j = 0; j < gemm.n + 3; ++j) {
      const std::size_t at = count(i, gemm.n + 3) + static_cast<std::size_t>(j);
      if (j >= gemm.n) {
        ASSERT_EQ(first[at], before[at]) << "written past a row";
        continue;
      }
      double expected = (gemm.accumulate ? before[at] : 0) +
                        (gemm.with_bias ? bias[static_cast<std::size_t>(j)] : 0),
             size = 1;
      for (std::int64_t d = 0; d < gemm.k; ++d) {
        const double term = a[gemm.a_across ? count(d, gemm.m) + static_cast<std::size_t>(i)
                                            : count(i, gemm.k) + static_cast<std::size_t>(d)] *
                            b[gemm.b_across ? count(d, gemm.n) + static_cast<std::size_t>(j)
                                            : count(j, gemm.k) + static_cast<std::size_t>(d)];
        expected += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(first[at], expected,
                  0x1p-23 * std::sqrt(static_cast<double>(gemm.k)) * size +
                      epsilon * (1 + std::abs(expected)))
          << gemm.m << "×" << gemm.n << "×" << gemm.k << " row " << i << " column " << j;
    }
  }
}

TEST(TileGemm, EqualsFloat64InEveryOrientation) {
  for (int way = 0; way < 32; ++way) {
    TileGemmCase gemm{.m = 1, .n = 1, .k = 1};
    gemm.out_type = (way & 1) != 0 ? Type::f32 : Type::bf16;
    gemm.a_across = (way & 2) != 0;
    gemm.b_across = (way & 4) != 0;
    gemm.accumulate = (way & 8) != 0;
    gemm.with_bias = (way & 16) != 0;
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {17, 49, 33}, {50, 64, 70}, {9, 77, 96}}) {
      gemm.m = m;
      gemm.n = n;
      gemm.k = k;
      expect_right(gemm);
    }
  }
}

TEST(TileGemm, EqualsFloat64OverSeveralBlocksAndPasses) {
  expect_right({.m = 261, .n = 100, .k = 600});
  expect_right({.m = 261, .n = 100, .k = 608, .with_bias = true});
  expect_right({.m = 150,
                .n = 70,
                .k = 777,
                .out_type = Type::f32,
                .a_across = true,
                .b_across = true,
                .accumulate = true});
}

TEST(TileGemmPlan, CoversTheResultWithinTheCache) {
  for (const std::int64_t m : {1, 33, 1024, 50257}) {
    for (const std::int64_t n : {1, 768, 50257}) {
      for (const std::int64_t k : {1, 768, 16384, 50257}) {
        for (const std::int64_t threads : {1, 2, 64}) {
          GemmArguments g{};
          g.a_row_stride = k;
          g.a_depth_stride = g.b_depth_stride = 1;
          g.b_column_stride = k;
          g.m = m;
          g.n = n;
          g.k = k;
          const GemmPlan plan = plan_tile_gemm(g, threads);
          EXPECT_GE(plan.rows_each * plan.row_parts, m);
          EXPECT_GE(plan.panels_each * plan.column_parts * kPanelColumns, n);
          EXPECT_GE(2 * plan.steps_each * plan.passes, k);
          const TileWorkspace space = tile_workspace(plan);
          EXPECT_LE(std::min(space.row_bytes, space.panel_bytes),
                    std::max<std::int64_t>(l2_cache_bytes(), 4 * k * kTileBlockRows));
          EXPECT_LE(space.sum_bytes,
                    l2_cache_bytes() + 4 * kTileBlockRows * plan.panels_each * kPanelColumns);
          if (m >= 1024 && n >= 768) {
            EXPECT_GE(plan.units(), std::min<std::int64_t>(threads, 16));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
