// Tests the AMX micro-kernel on emulated tiles. Lines, halves and strides are those of the CPU, and
// only the registers are ordinary memory. If the CPU has AMX, the real tiles give the same sums.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "emulated_tiles.h"
#include "storage.h"
#include "variants.h"

namespace megatron::kernels {

MEGATRON_DEFINE_VARIANTS(MicroKernel, bf16_micro_kernel, MEGATRON_X86_ISAS(amx))

namespace {

/// Returns out [rows, columns] = a·b with a along or across depth. Both operands are packed into
/// lines that are filled with NaN.
std::vector<float> emulated_gemm(const MicroKernel& micro_kernel, const Storage& a, bool along,
                                 const Storage& b, std::int64_t rows, std::int64_t columns,
                                 std::int64_t depth, bool accumulate) {
  const std::int64_t steps = micro_kernel.steps_of(depth), line = steps + 16;
  std::vector<std::uint32_t> lines(static_cast<std::size_t>(rows * line), 0x7FC07FC0u),
      panel(static_cast<std::size_t>(steps * kPanelColumns), 0x7FC07FC0u);
  micro_kernel.copy({.from = a.data(),
                     .type = Type::bf16,
                     .depth_stride = along ? 1 : rows,
                     .cross_stride = along ? depth : 1,
                     .depth = depth,
                     .count = rows,
                     .to = lines.data(),
                     .to_stride = line});
  micro_kernel.pack({.from = b.data(),
                     .type = Type::bf16,
                     .depth_stride = columns,
                     .cross_stride = 1,
                     .depth = depth,
                     .count = columns,
                     .to = panel.data(),
                     .to_stride = kPanelColumns});
  std::vector<float> out(static_cast<std::size_t>(rows * columns), 0.25f);
  micro_kernel.multiply({.a = lines.data(),
                         .row_stride = line,
                         .step_stride = 1,
                         .panel = panel.data(),
                         .out = out.data(),
                         .out_stride = columns,
                         .rows = rows,
                         .columns = columns,
                         .steps = steps,
                         .accumulate = accumulate});
  return out;
}

void expect_right(const MicroKernel& micro_kernel) {
  for (const bool along : {true, false}) {
    for (const std::int64_t rows : {1, 15, 16, 17, 33, 70}) {
      for (const std::int64_t columns : {1, 16, 31, 32}) {
        for (const std::int64_t depth : {1, 2, 31, 32, 65, 300}) {
          const Storage a = numbers(Type::bf16, static_cast<std::size_t>(rows * depth), 1),
                        b = numbers(Type::bf16, static_cast<std::size_t>(depth * columns), 2);
          const auto out = emulated_gemm(micro_kernel, a, along, b, rows, columns, depth,
                                         /*accumulate=*/rows == 17);
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c < columns; ++c) {
              double expected = rows == 17 ? 0.25 : 0, size = 1;
              for (std::int64_t d = 0; d < depth; ++d) {
                const double term =
                    a[static_cast<std::size_t>(along ? r * depth + d : d * rows + r)] *
                    b[static_cast<std::size_t>(d * columns + c)];
                expected += term;
                size += std::abs(term);
              }
              ASSERT_NEAR(out[static_cast<std::size_t>(r * columns + c)], expected,
                          0x1p-23 * std::sqrt(static_cast<double>(depth)) * size)
                  << rows << "×" << columns << "×" << depth;
            }
          }
        }
      }
    }
  }
}

TEST(AmxMicroKernel, EqualsFloat64OnEmulatedTiles) {
  expect_right(emulation::amx_micro_kernel<EmulatedTiles>());
}

TEST(AmxMicroKernel, EqualsFloat64OnRealTiles) {
  const auto variants = bf16_micro_kernel_variants();
  if (variants.empty()) GTEST_SKIP() << "needs AMX";
  expect_right(variants.front().kernels);
}

}  // namespace
}  // namespace megatron::kernels
