// The contract between layers and the kernels of each device (src/kernels/cpu, src/kernels/cuda):
// fused operations over rows of contiguous numbers as plain arguments. Storage types vary.
// Arithmetic is in f32 (in f64 where the storage is f64), and results are rounded once at the end.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// Gives every element of a tensor its coordinates in the random stream of its sample. Row r =
/// (outer·middle + m)·inner + i starts at element base + place·outer_step + m·middle_step +
/// i·inner_step of sample number i (if `sample_is_inner`) or number `outer`, where place is
/// positions[outer], or `outer` without positions.
struct RowCoordinates {
  const std::int64_t* ordinals;   ///< one for each sample, on the tensors' device
  const std::int64_t* positions;  ///< one for each value of `outer` there, or null
  std::int64_t middle, inner;
  std::uint64_t base, outer_step, middle_step, inner_step;
  bool sample_is_inner;
};

struct DropoutRule {
  std::uint64_t key;
  std::uint32_t threshold;  ///< an element is kept if its 32-bit draw ≥ threshold = ⌊p·2³²⌋
  double scale;             ///< factor of kept values: 1 / (1 − p)
};

/// out = residual + keep·scale·x. The residual has out's type or is null, and out may be x.
struct DropoutArguments {
  const void *x, *residual;
  void* out;
  Type x_type, out_type;  ///< equal, or one is f32 and the other 16 bits wide
  std::int64_t rows, columns;
  RowCoordinates coordinates;
  DropoutRule rule;
};

/// y = x·rstd·(weight + offset) with rstd = 1/√(mean(x²) + ε) for each row. weight [columns] is f32
/// (f64 with f64).
struct RmsNormArguments {
  const void *x, *weight;
  void *y, *rstd;       ///< rstd [rows] is f32 (f64 with f64)
  Type x_type, y_type;  ///< equal, or x is f32 and y 16 bits wide
  std::int64_t rows, columns;
  double epsilon, offset;
};

/// Backward of RmsNormArguments: overwrites dx, and dweight[c] = Σ over rows of dy·x·rstd. weight
/// and dweight are f32 (f64 with f64).
struct RmsNormBackwardArguments {
  const void *dy, *x, *weight, *rstd;
  void *dx, *dweight;
  Type x_type, y_type;  ///< x and dx have x_type, dy has y_type
  std::int64_t rows, columns;
  double offset;
};

/// Rotary embedding of x [tokens, heads, head_dim] into a contiguous `out`, which may not be x. The
/// strides of x are in elements, and its last dimension is contiguous. The tables [rows, rotary_dim
/// / 2] are f32 (f64 with f64). Token t uses row t / tokens_per_row of the tables.
struct RotaryArguments {
  const void *x, *cos, *sin;
  void* out;
  Type type;
  std::int64_t tokens, heads, head_dim, rotary_dim;
  std::int64_t token_stride, head_stride;
  std::int64_t tokens_per_row;
  bool interleaved;  ///< rotates pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  double sign;       ///< +1 for forward, −1 for backward (the transpose)
};

/// Positions of a block of a KV cache, and of the keys that a part of a softmax adds up.
inline constexpr std::int64_t kPagedBlockPositions = 128, kPagedPartPositions = 1024;
/// Most channels of a head in PagedAttentionArguments.
inline constexpr std::int64_t kMaxHeadChannels = 1024;

/// A row of PagedAttentionArguments.
struct PagedRow {
  std::int64_t position;    ///< of the token in its sequence; −1: the row belongs to no sequence
  std::int64_t begin, end;  ///< positions of the keys that its queries see
  std::int64_t table;       ///< index in `blocks` of the first block of its sequence
};

/// Numbers [rows, heads, channels]. Strides are in elements, and channels are contiguous.
struct RowHeads {
  const void* data;
  std::int64_t row_stride, head_stride;
};

/// New tokens of sequences whose keys and values are in the blocks of a KV cache. append_to_cache()
/// writes k and v to the blocks; paged_attention() computes attention of q to the keys of the own
/// sequence. The score of key j is scale·q·k[j], capped to softcap·tanh(score / softcap) if
/// softcap > 0, plus slope·(j − position). A sink is the score of one more key, whose value is
/// zero. A row that sees no key has the result zero.
struct PagedAttentionArguments {
  RowHeads q, k, v;  ///< of n, g and g heads
  void* out;         ///< [num_rows, n, dv]
  Type type;
  const PagedRow* rows;  ///< [num_rows] on the tensors' device
  /// Addresses there of the blocks of one sequence after another: [kPagedBlockPositions, g, kept],
  /// where kept = d + dv, or d if values are the first dv channels of keys.
  char* const* blocks;
  std::int64_t num_rows, n, g, d, dv, kept;
  double scale, softcap;
  const float *sinks, *alibi_slopes;  ///< [n] or null
  std::int64_t parts;  ///< parts of kPagedPartPositions up to the largest PagedRow::end
  void* workspace;     ///< f32 (f64 with f64) [num_rows, n, parts, 2 + dv]
};

/// The kernels of an accelerator. They queue their work on the current stream of the calling thread
/// and do not wait for it.
struct RowOperations {
  void (*dropout)(const DropoutArguments&);
  void (*rms_norm)(const RmsNormArguments&);
  void (*rms_norm_backward)(const RmsNormBackwardArguments&);
  void (*rotary)(const RotaryArguments&);
  void (*append_to_cache)(const PagedAttentionArguments&);
  void (*paged_attention)(const PagedAttentionArguments&);
};

}  // namespace megatron::kernels
