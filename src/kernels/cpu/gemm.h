// GEMMs of the CPU, made of micro-kernel calls. Pure loops over raw memory: the caller shares the
// units of a plan among threads.
//
// Order of summation: depth is cut at multiples of kDepthBlockSteps steps (256 numbers in f32, 512
// in bf16); a block is summed as gemm_micro_kernel.h says, and blocks are added in ascending order
// to what `out` holds, or to nothing. With 16-bit results bias and the one rounding come last. So
// an element's bits depend on its row of a, its column of b and depth alone: not on m, n, threads
// or where the row stands.
#pragma once

#include <cstdint>

#include "kernels/cpu/micro_kernel.h"

namespace megatron::kernels {

inline constexpr std::int64_t kDepthBlockSteps = 256;

/// out [m, n] (+)= a [m, k] · b [k, n] + bias [n]. Strides are in elements; of a's and b's two
/// strides one must be 1.
struct GemmArguments {
  const void *a, *b;
  Type type;  ///< of a and b: f32, bf16 or f16
  std::int64_t a_row_stride, a_depth_stride;
  std::int64_t b_depth_stride, b_column_stride;
  void* out;
  Type out_type;  ///< f32, or the operands'
  std::int64_t out_stride;
  const void* bias;  ///< in the operands' type, or null
  std::int64_t m, n, k;
  bool accumulate;
};

/// How a product is cut into units of about the same work.
struct GemmPlan {
  std::int64_t row_parts, rows_each;  ///< multiples of kPanelRows
  std::int64_t column_parts, panels_each;
  std::int64_t passes,
      steps_each;                ///< over depth; a pass has a multiple of kDepthBlockSteps, or all
  std::int64_t workspace_bytes;  ///< of each thread
  std::int64_t units() const { return row_parts * column_parts; }
};

GemmPlan plan_gemm(const GemmArguments& arguments, std::int64_t threads);

/// Computes units [begin, end). `workspace` is this thread's own, aligned to 64 bytes.
void run_gemm(const GemmArguments& arguments, const GemmPlan& plan, std::int64_t begin,
              std::int64_t end, void* workspace);

}  // namespace megatron::kernels
