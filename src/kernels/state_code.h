// Codes of 8 bits for optimizer state with a scale for each block: a table of at most 256 numbers
// in [−1, 1] (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022). A block
// is divided by its largest magnitude, and each number becomes the nearest of the table.
#pragma once

#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/host_device.h"

namespace megatron::kernels {

/// A plain table, which may be copied to a device.
struct StateCode {
  static constexpr int kSize = 256;
  /// Cells of a number's exponent and six bits behind it, from 2⁻²³ to 1, and one for smaller ones.
  static constexpr std::int32_t kCells = 23 * 64 + 2;

  /// The number that a byte stands for. Byte 0 is zero.
  float values[kSize];
  /// boundaries[r] separates the numbers of rank r and r + 1, in ascending order; infinity at the
  /// end. There is one that follows, so that two may be read.
  float boundaries[kSize + 1];
  std::int32_t zero_rank;  ///< the rank of zero; the byte of rank r is r − zero_rank mod 256
  /// The rank of the smallest magnitude in each cell, for positive numbers, then of the largest for
  /// negative ones. At most two boundaries lie in a cell.
  std::int32_t first_rank[2 * kCells];
};

/// Returns the cell of a number in [−1, 1]; others belong to the last cell of their sign.
MEGATRON_KERNEL_INLINE MEGATRON_HOST_DEVICE std::int32_t state_code_cell(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const auto key = static_cast<std::int32_t>((bits & 0x7FFFFFFFu) >> 17) - ((127 - 23) * 64 - 1);
  const std::int32_t above = key > 0 ? key : 0,
                     cell = above < StateCode::kCells ? above : StateCode::kCells - 1;
  return (bits >> 31) != 0 ? cell + StateCode::kCells : cell;
}

/// Returns the byte of a number in [−1, 1]: its rank is the number of boundaries below it.
MEGATRON_KERNEL_INLINE MEGATRON_HOST_DEVICE std::uint8_t encode_state(const StateCode& code,
                                                                      float x) {
  std::int32_t rank = code.first_rank[state_code_cell(x)];
  const std::int32_t first = code.boundaries[rank] < x ? 1 : 0,
                     second = code.boundaries[rank + 1] < x ? 1 : 0;
  rank += first + second;
  return static_cast<std::uint8_t>(rank - code.zero_rank);
}

/// Returns the scale of a block whose largest magnitude is `largest`.
MEGATRON_KERNEL_INLINE MEGATRON_HOST_DEVICE float state_code_scale(float largest) {
  return largest > 0 && largest - largest == 0 ? largest : 1;
}

}  // namespace megatron::kernels
