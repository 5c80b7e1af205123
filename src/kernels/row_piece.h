// Rows that one sequence has in a tensor [s, b, …].
#pragma once

#include <cstdint>

namespace megatron::kernels {

/// Neighbouring rows x[row + i, column] of one sequence for i < count. Nothing passes from one
/// piece to another, except by the initial states that the caller gives.
struct RowPiece {
  std::int64_t column = 0, row = 0, count = 0;
  std::int64_t position = 0;  ///< of the first row in its sequence
};

}  // namespace megatron::kernels
