// GEMMs on the CPU, made of micro-kernel calls. They are pure loops over raw memory. The caller
// shares the units of a plan among threads.
//
// Order of summation: depth is cut at multiples of kDepthBlockSteps steps (256 numbers in f32, 512
// in bf16). A block is summed as micro_kernel.h specifies. Blocks are added in ascending order to
// what `out` holds, or to zero. The bias is added last, before the one rounding of 16-bit results.
// So the bits of an element depend only on its row of a, its column of b and the depth. They do not
// depend on m, n, threads or the position of the row. (With AMX the whole depth is one block, and
// what `out` holds is added to it.)
#pragma once

#include <cstdint>

#include "kernels/cpu/micro_kernel.h"

namespace megatron::kernels {

inline constexpr std::int64_t kDepthBlockSteps = 256;

/// out [m, n] (+)= a [m, k] · b [k, n] + bias [n]. Strides are in elements. One of the two strides
/// of a must be 1, and one of b.
struct GemmArguments {
  const void *a, *b;
  Type type;  ///< a and b are f32, bf16 or f16
  std::int64_t a_row_stride, a_depth_stride;
  std::int64_t b_depth_stride, b_column_stride;
  void* out;
  Type out_type;  ///< f32, or the type of the operands
  std::int64_t out_stride;
  const void* bias;  ///< has the type of the operands, or is null
  std::int64_t m, n, k;
  bool accumulate;
  /// The number of first columns of b that pack_in_place() has packed: whole panels. The strides of
  /// b hold for the other columns; with packed columns they are 1 and k.
  std::int64_t b_packed_columns = 0;
};

/// Cuts a GEMM into units of about the same work. Plans of micro-kernels with run_unit come from
/// plan_tile_gemm().
struct GemmPlan {
  std::int64_t row_parts, rows_each;  ///< multiples of kPanelRows; of 32 for run_unit
  std::int64_t column_parts, panels_each;
  /// These cut the depth. A pass has a multiple of kDepthBlockSteps steps (kTileBlockSteps for
  /// run_unit), or all of them.
  std::int64_t passes, steps_each;
  std::int64_t workspace_bytes;  ///< for each thread
  bool rows_stay = false;        ///< see tile_gemm_plan.h
  std::int64_t units() const { return row_parts * column_parts; }
};

/// Returns the number of columns of a weight, stored as `columns` lines of `depth` numbers one
/// after another, that can be packed in place: whole panels, of any type as wide as it is
/// multiplied. It is 0 for depths that packing would pad.
std::int64_t columns_packed_in_place(Type type, std::int64_t columns, std::int64_t depth);

/// Packs kPanelColumns columns in place, as the micro-kernel of this CPU reads them; the panel
/// takes as many bytes. Types that it widens stay narrow, [depth, kPanelColumns]. `workspace` has
/// room for the panel and is aligned to 64 bytes.
void pack_in_place(Type type, void* columns, std::int64_t depth, void* workspace);

GemmPlan plan_gemm(const GemmArguments& arguments, std::int64_t threads);

/// Computes units [begin, end). `workspace` belongs to this thread and is aligned to 64 bytes.
/// Micro-kernels without run_unit may prefetch `upcoming`, which may be null.
void run_gemm(const GemmArguments& arguments, const GemmPlan& plan, std::int64_t begin,
              std::int64_t end, void* workspace, UpcomingLines* upcoming = nullptr);

/// Returns the part of b that a unit packs first; nothing where the micro-kernel has run_unit.
UpcomingLines lines_to_pack(const GemmArguments& arguments, const GemmPlan& plan,
                            std::int64_t unit);

}  // namespace megatron::kernels
