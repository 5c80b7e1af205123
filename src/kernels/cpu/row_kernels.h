// The row operations on the CPU. Results do not depend on the instruction set.
#pragma once

#include "kernels/row_operations.h"

namespace megatron::kernels {

/// Gives the place of heads in elements: head h of token t is at (t / samples)·position + (t mod
/// samples)·sample + (h / group_heads)·group + (h mod group_heads)·head. The channels of a head are
/// contiguous.
struct HeadLayout {
  std::int64_t position, sample, group, head;
  std::int64_t group_heads;
};

/// Copies heads to another layout. If there are tables [rows, rotary_dim / 2] in f32 (f64 with
/// f64), also rotates them by position, as RotaryArguments describes.
struct HeadsArguments {
  const void* from;
  void* to;
  HeadLayout from_layout, to_layout;
  Type type;
  std::int64_t tokens, samples, heads, head_dim;
  const void *cos, *sin;  ///< null for no rotation
  std::int64_t rotary_dim, tokens_per_row;
  bool interleaved;
  double sign;
};

/// Every function works on a range [begin, end) of rows (dropout) or tokens (heads), so that
/// callers can share the work among threads.
struct RowKernels {
  void (*dropout)(const DropoutArguments&, std::int64_t begin, std::int64_t end);
  void (*heads)(const HeadsArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const RowKernels& row_kernels();

}  // namespace megatron::kernels
