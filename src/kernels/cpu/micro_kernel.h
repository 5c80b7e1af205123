// The GEMM micro-kernel on the CPU: rows of a times a packed panel of b, in f32. GEMMs and
// attention are made of it.
//
// Order of summation: an element of a call's product is Σ over depth in ascending order, one fused
// multiply-add after another, from zero; with `accumulate` that sum is added to what `out` holds.
// Rows, columns and their number change no bit of an element, and with f32 operands no instruction
// set does. (The bf16 instructions take two neighbours of depth at a time, and AMX has an order of
// its own inside sixteen such pairs.)
#pragma once

#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// Columns of a panel of b.
inline constexpr std::int64_t kPanelColumns = 32;
/// Rows that most products work on at a time.
inline constexpr std::int64_t kPanelRows = 12;

/// What lies in memory along depth and across it (rows of a, columns of b); one of the two strides,
/// in elements, is 1.
struct PackArguments {
  const void* from;
  Type type;  ///< f32, bf16 or f16
  std::int64_t depth_stride, cross_stride;
  std::int64_t depth, count;
  void* to;
  std::int64_t to_stride;  ///< steps between neighbours of depth in the result (kPanelColumns for a
                           ///< panel); at least count
  /// Bytes between panels, when count is that of several: each of to_stride, the last may have
  /// fewer.
  std::int64_t panel_stride = 0;
};

/// out [rows, columns] f32 (+)= a·panel. a lies in steps of 4 bytes, one f32 or two bf16 that are
/// neighbours of depth: step s of row r is at a + 4·(r·row_stride + s·step_stride). So rows of a
/// tensor are read as they lie (step_stride 1, row_stride in steps; all `steps` of them, so that
/// depth must be a whole number of `multiple` steps), or packed ones.
struct MicroKernelArguments {
  const void* a;
  std::int64_t row_stride, step_stride;
  const void* panel;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, columns;  ///< columns ≤ kPanelColumns
  std::int64_t steps;          ///< of depth
  bool accumulate;
};

struct MicroKernel {
  Type type;  ///< of packed operands, f32 or bf16; wider than the storage where the CPU does not
              ///< multiply that
  bool needs_packed_rows =
      false;  ///< a must lie in lines (step_stride 1), and `copy` makes them of anything
  std::int64_t multiple = 1;  ///< of steps: packing fills up with zeros
  std::int64_t rows =
      kPanelRows;  ///< worked on at a time: any number is right, multiples are fastest
  /// Packs to [steps, to_stride] steps, converted to `type`; what lies past count (up to to_stride)
  /// and past an odd depth is zero. With bf16 a step holds the depths 2s and 2s + 1.
  void (*pack)(const PackArguments&);
  /// Copies lines that lie along depth (depth_stride 1, but for needs_packed_rows) one behind the
  /// other, converted to `type`; here to_stride is the steps between two lines, at least
  /// steps_of(depth). What lies past depth is zero up to there.
  void (*copy)(const PackArguments&);
  void (*multiply)(const MicroKernelArguments&);

  MEGATRON_KERNEL_INLINE std::int64_t steps_of(std::int64_t depth) const {
    const std::int64_t steps = type == Type::bf16 ? (depth + 1) / 2 : depth;
    return (steps + multiple - 1) / multiple * multiple;
  }
  /// Bytes of `count` rows or columns packed with this stride.
  MEGATRON_KERNEL_INLINE std::int64_t packed_bytes(std::int64_t depth,
                                                   std::int64_t to_stride = kPanelColumns) const {
    return 4 * steps_of(depth) * to_stride;
  }
};

/// The fastest product of this CPU for operands stored as f32, bf16 or f16.
const MicroKernel& gemm_micro_kernel(Type storage);

}  // namespace megatron::kernels
