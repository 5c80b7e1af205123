// The GEMM micro-kernel on the CPU: multiplies rows of a by a packed panel of b, in f32. GEMMs and
// attention are made of it.
//
// Order of summation: an element of a call's result is Σ over depth in ascending order, one fused
// multiply-add after another, from zero. With `accumulate` that sum is added to what `out` holds.
// The number and position of rows and columns change no bit of an element, and with f32 operands
// the instruction set does not either. (The bf16 instructions take two neighbours of depth at a
// time. AMX has an order of its own inside sixteen such pairs, and with `accumulate` its sums
// continue from what `out` holds.)
#pragma once

#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// Number of columns of a panel of b.
inline constexpr std::int64_t kPanelColumns = 32;
/// With fewer steps a micro-kernel does not prefetch the sums that it adds to: GEMMs of attention
/// have them in the L1 cache.
inline constexpr std::int64_t kMinStepsToPrefetchOut = 128;
/// How far ahead a packed weight is prefetched that streams from memory, in bytes.
inline constexpr std::int64_t kPanelAhead = 16384;
/// Number of rows that most micro-kernels process at a time.
inline constexpr std::int64_t kPanelRows = 12;

/// An operand in memory. Depth is the dimension that the GEMM sums over; rows of a and columns of b
/// lie across it. One of the two strides, in elements, is 1.
struct PackArguments {
  const void* from;
  Type type;  ///< f32, bf16 or f16
  std::int64_t depth_stride, cross_stride;
  std::int64_t depth, count;
  void* to;
  /// Steps between neighbours of depth in the result: kPanelColumns for a panel, and at least
  /// `count`.
  std::int64_t to_stride;
  /// Bytes between panels, when `count` covers several. Each panel has to_stride rows or columns,
  /// and the last one may have fewer.
  std::int64_t panel_stride = 0;
};

/// Cache lines that a micro-kernel prefetches into the L2 cache between its steps, one at a time:
/// so a GEMM does not wait for memory that it packs next. They are `runs` runs of lines that lie
/// `jump` bytes after the end of the one before.
struct UpcomingLines {
  const char* line = nullptr;
  std::int64_t left = 0;  ///< in this run
  std::int64_t lines_each = 0, jump = 0, runs = 0;

  UpcomingLines() = default;
  UpcomingLines(const void* first, std::int64_t num_runs, std::int64_t stride_bytes,
                std::int64_t run_bytes)
      : line(static_cast<const char*>(first)),
        left((run_bytes + 63) / 64),
        lines_each(left),
        jump(stride_bytes - 64 * left),
        runs(num_runs) {}
};

/// out [rows, columns] (+)= a·panel in f32. a is read in steps of 4 bytes, which hold one f32 or
/// two bf16 that are neighbours of depth. Step s of row r is at a + 4·(r·row_stride +
/// s·step_stride). So the rows of a tensor can be read in place (step_stride 1, row_stride in
/// steps), if their depth is a whole number of `multiple` steps. Packed rows can be read too.
struct MicroKernelArguments {
  const void* a;
  std::int64_t row_stride, step_stride;
  const void* panel;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, columns;  ///< columns ≤ kPanelColumns
  std::int64_t steps;          ///< along depth
  bool accumulate;
  UpcomingLines* upcoming = nullptr;  ///< The micro-kernel may advance it.
  bool streams_panel = false;  ///< The micro-kernel may prefetch as many bytes after the panel's.
};

struct GemmArguments;
struct GemmPlan;

struct MicroKernel {
  /// Type of packed operands, f32 or bf16. It is wider than the storage type when the CPU cannot
  /// multiply that.
  Type type;
  /// Requires rows of a with step_stride 1, which `copy` makes from any operand.
  bool needs_packed_rows = false;
  std::int64_t multiple = 1;  ///< packing pads depth with zeros to a multiple of this many steps
  /// Number of rows that are processed at a time. Any number works, and multiples of it are
  /// fastest.
  std::int64_t rows = kPanelRows;
  /// Packs an operand to [steps, to_stride] steps, converted to `type`. Steps past `count` (up to
  /// to_stride) and past an odd depth are zero. With bf16 step s holds the depths 2s and 2s + 1.
  void (*pack)(const PackArguments&);
  /// Copies lines that lie along depth one after another, converted to `type`. With
  /// needs_packed_rows they may also lie across depth. Here to_stride is the steps between two
  /// lines, at least steps_of(depth), and steps past depth are zero up to there.
  void (*copy)(const PackArguments&);
  void (*multiply)(const MicroKernelArguments&);
  /// Sets up the registers of this thread for calls of `multiply`, and gives them back. Null where
  /// there is nothing to do. `multiply` also works without.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  /// Computes a unit of a plan of plan_tile_gemm() (tile_gemm_plan.h). Null in micro-kernels whose
  /// units gemm.cpp computes.
  void (*run_unit)(const GemmArguments&, const GemmPlan&, std::int64_t unit,
                   void* workspace) = nullptr;

  MEGATRON_KERNEL_INLINE std::int64_t steps_of(std::int64_t depth) const {
    const std::int64_t steps = type == Type::bf16 ? (depth + 1) / 2 : depth;
    return (steps + multiple - 1) / multiple * multiple;
  }
  /// Returns the bytes of `count` packed rows or columns, for this stride.
  MEGATRON_KERNEL_INLINE std::int64_t packed_bytes(std::int64_t depth,
                                                   std::int64_t to_stride = kPanelColumns) const {
    return 4 * steps_of(depth) * to_stride;
  }
};

/// Keeps the registers of this thread set up for a micro-kernel.
class MicroKernelScope {
 public:
  MEGATRON_KERNEL_INLINE explicit MicroKernelScope(const MicroKernel& micro_kernel)
      : end_(micro_kernel.end) {
    if (micro_kernel.begin != nullptr) micro_kernel.begin();
  }
  MicroKernelScope(const MicroKernelScope&) = delete;
  MicroKernelScope& operator=(const MicroKernelScope&) = delete;
  MEGATRON_KERNEL_INLINE ~MicroKernelScope() {
    if (end_ != nullptr) end_();
  }

 private:
  void (*end_)();
};

/// Returns the fastest micro-kernel of this CPU for operands stored as f32, bf16 or f16.
const MicroKernel& gemm_micro_kernel(Type storage);

}  // namespace megatron::kernels
