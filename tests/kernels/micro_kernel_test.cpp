// Compares the micro-kernel of every instruction set with float64 over ragged sizes and both
// orientations of an operand. The number of rows and the position of a row change no bit.
#include "kernels/cpu/micro_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(MicroKernel, f32_micro_kernel, portable, MEGATRON_X86_ISAS(avx2, avx512))
MEGATRON_DEFINE_VARIANTS(MicroKernel, bf16_micro_kernel, portable, MEGATRON_X86_ISAS(avx512bf16))

namespace {

std::vector<Variant<MicroKernel>> micro_kernels() {
  std::vector<Variant<MicroKernel>> all = f32_micro_kernel_variants();
  for (Variant<MicroKernel>& variant : bf16_micro_kernel_variants()) all.push_back(variant);
  all.push_back({"chosen f32", gemm_micro_kernel(Type::f32)});
  all.push_back({"chosen bf16", gemm_micro_kernel(Type::bf16)});
  return all;
}

struct Operand {
  Storage values;
  bool along_depth;  ///< neighbours in memory are neighbours of depth
  std::int64_t depth, count, line;

  Operand(Type type, bool is_along, std::int64_t num_depth, std::int64_t num_lines,
          std::uint64_t seed)
      : values(numbers(type,
                       static_cast<std::size_t>((is_along ? num_lines : num_depth) *
                                                ((is_along ? num_depth : num_lines) + 3)),
                       seed)),
        along_depth(is_along),
        depth(num_depth),
        count(num_lines),
        line((is_along ? num_depth : num_lines) + 3) {}

  double at(std::int64_t d, std::int64_t c) const {
    return values[static_cast<std::size_t>(along_depth ? c * line + d : d * line + c)];
  }
  std::vector<std::uint32_t> packed(const MicroKernel& micro_kernel, std::int64_t stride) const {
    std::vector<std::uint32_t> to(
        static_cast<std::size_t>(micro_kernel.packed_bytes(depth, stride) / 4), 0xFFFFFFFFu);
    micro_kernel.pack({.from = values.data(),
                       .type = values.type(),
                       .depth_stride = along_depth ? 1 : line,
                       .cross_stride = along_depth ? line : 1,
                       .depth = depth,
                       .count = count,
                       .to = to.data(),
                       .to_stride = stride});
    return to;
  }
};

/// Rows as a micro-kernel reads them.
struct Rows {
  std::vector<std::uint32_t> values;
  std::int64_t row_stride = 0, step_stride = 0;
};

Rows rows_for(const MicroKernel& micro_kernel, const Operand& a) {
  if (!micro_kernel.needs_packed_rows) {
    const std::int64_t stride = a.count + 2;
    return {a.packed(micro_kernel, stride), 1, stride};
  }
  const std::int64_t line = micro_kernel.steps_of(a.depth);
  Rows rows{std::vector<std::uint32_t>(static_cast<std::size_t>(a.count * line), 0xFFFFFFFFu), line,
            1};
  micro_kernel.copy({.from = a.values.data(),
                     .type = a.values.type(),
                     .depth_stride = a.along_depth ? 1 : a.line,
                     .cross_stride = a.along_depth ? a.line : 1,
                     .depth = a.depth,
                     .count = a.count,
                     .to = rows.values.data(),
                     .to_stride = line});
  return rows;
}

std::vector<float> multiply(const MicroKernel& micro_kernel, const Operand& a, const Operand& b,
                            std::int64_t first, std::int64_t rows, const std::vector<float>& before,
                            UpcomingLines* upcoming = nullptr) {
  const std::int64_t out_stride = b.count + 5;
  const Rows packed = rows_for(micro_kernel, a);
  const auto panel = b.packed(micro_kernel, kPanelColumns);
  std::vector<float> out(static_cast<std::size_t>(rows * out_stride), -7.0f);
  for (std::int64_t r = 0; r < rows && !before.empty(); ++r)
    for (std::int64_t c = 0; c < b.count; ++c)
      out[static_cast<std::size_t>(r * out_stride + c)] = before[static_cast<std::size_t>(c)];
  micro_kernel.multiply({.a = packed.values.data() + first * packed.row_stride,
                         .row_stride = packed.row_stride,
                         .step_stride = packed.step_stride,
                         .panel = panel.data(),
                         .out = out.data(),
                         .out_stride = out_stride,
                         .rows = rows,
                         .columns = b.count,
                         .steps = micro_kernel.steps_of(a.depth),
                         .accumulate = !before.empty(),
                         .upcoming = upcoming});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = b.count; c < out_stride; ++c)
      EXPECT_EQ(out[static_cast<std::size_t>(r * out_stride + c)], -7.0f)
          << "written past the columns";
  return out;
}

void expect_gemm(const Variant<MicroKernel>& variant, const Operand& a, const Operand& b) {
  const std::vector<float> before(static_cast<std::size_t>(b.count), 0.5f);
  for (const bool accumulate : {false, true}) {
    const auto out =
        multiply(variant.kernels, a, b, 0, a.count, accumulate ? before : std::vector<float>{});
    for (std::int64_t r = 0; r < a.count; ++r) {
      for (std::int64_t c = 0; c < b.count; ++c) {
        double expected = accumulate ? 0.5 : 0, size = 1;
        for (std::int64_t d = 0; d < a.depth; ++d) {
          expected += a.at(d, r) * b.at(d, c);
          size += std::abs(a.at(d, r) * b.at(d, c));
        }
        const double got = out[static_cast<std::size_t>(r * (b.count + 5) + c)];
        EXPECT_NEAR(got, expected, 0x1p-23 * std::sqrt(static_cast<double>(a.depth)) * size)
            << variant.name << " row " << r << " column " << c;
      }
    }
  }
}

TEST(MicroKernel, EqualsFloat64OnRaggedSizesFromEveryStorage) {
  for (const Variant<MicroKernel>& variant : micro_kernels()) {
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      if (variant.kernels.type == Type::bf16 && type != Type::bf16) continue;
      for (const std::int64_t depth : {1, 2, 7, 33}) {
        for (const std::int64_t rows : {1, 5, 12, 31}) {
          for (const std::int64_t columns : {1, 8, 17, 32})
            expect_gemm(variant, Operand(type, rows % 2 == 1, depth, rows, 1),
                        Operand(type, columns % 2 == 1, depth, columns, 2));
        }
      }
      expect_gemm(variant, Operand(type, true, 40, 26, 3), Operand(type, true, 40, 32, 4));
      expect_gemm(variant, Operand(type, false, 41, 26, 3), Operand(type, true, 41, 30, 4));
    }
  }
}

TEST(MicroKernel, ARowDoesNotDependOnItsBatch) {
  for (const Variant<MicroKernel>& variant : micro_kernels()) {
    const Operand a(variant.kernels.type, true, 129, 29, 5),
        b(variant.kernels.type, false, 129, 32, 6);
    const auto all = multiply(variant.kernels, a, b, 0, 29, {});
    for (std::int64_t first = 0; first < 29; ++first) {
      for (const std::int64_t rows : {1, 2, 11, 13}) {
        if (first + rows > 29) continue;
        const auto some = multiply(variant.kernels, a, b, first, rows, {});
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * 37))
            << variant.name << " from " << first << ", " << rows << " rows";
      }
    }
  }
}

TEST(MicroKernel, Avx512PrefetchesUpcomingLinesWithAnyNumberOfRows) {
  const std::vector<char> memory(4096);
  for (const Variant<MicroKernel>& variant : micro_kernels()) {
    if (!variant.name.starts_with("avx512")) continue;
    const Operand a(variant.kernels.type, true, 40, 12, 9),
        b(variant.kernels.type, true, 40, 32, 1);
    for (std::int64_t rows = 1; rows <= 12; ++rows) {
      UpcomingLines upcoming(memory.data(), /*num_runs=*/3, /*stride_bytes=*/1024,
                             /*run_bytes=*/256);
      EXPECT_EQ(multiply(variant.kernels, a, b, 0, rows, {}, &upcoming),
                multiply(variant.kernels, a, b, 0, rows, {}));
      EXPECT_EQ(upcoming.runs, 0) << variant.name << ", " << rows << " rows";
    }
  }
}

TEST(MicroKernel, InstructionSetsAgreeInEveryBitOfFloat32) {
  // The first is the portable one, which on x86-64 rounds multiplications too.
  const auto variants = f32_micro_kernel_variants();
  if (variants.size() < 3) GTEST_SKIP() << "needs two instruction sets";
  const Operand a(Type::f32, true, 300, 14, 7), b(Type::f32, true, 300, 27, 8);
  EXPECT_EQ(multiply(variants[1].kernels, a, b, 0, 14, {}),
            multiply(variants[2].kernels, a, b, 0, 14, {}));
}

}  // namespace
}  // namespace megatron::kernels
