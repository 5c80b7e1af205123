// Rows that belong together in ops that carry something from row to row of a sequence: a state, or
// the inputs of a convolution.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace megatron {

/// Neighbouring rows of one sequence in x [s, b, …]: x[row + i, column] for i < count. Nothing
/// passes from one piece to another, except by the initial states that the caller gives.
struct RowPiece {
  std::int64_t column = 0, row = 0, count = 0;
  std::int64_t position = 0;  ///< of the first row in its sequence
};

/// Pieces that do not overlap. An empty list stands for whole columns that begin at position 0.
/// Rows in no piece have zeros as results and as gradients.
using RowPieces = std::vector<RowPiece>;

/// Returns the pieces as numbers {column, row, count, position, …}, for operators. Throws
/// InternalError unless they lie within x and do not overlap.
std::vector<std::int64_t> flat_pieces(const RowPieces& pieces, const at::Tensor& x);

/// Returns the pieces that flat_pieces() returned as numbers.
RowPieces pieces_of_numbers(at::IntArrayRef numbers);

/// Returns pieces for packed documents: `document_ids` int32 [b, s] on the CPU; each run of equal
/// ids is a piece whose first row has position 0.
RowPieces document_pieces(const at::Tensor& document_ids);

}  // namespace megatron
