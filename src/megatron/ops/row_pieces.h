// Rows that belong together in ops that carry something from row to row of a sequence: a state, or
// the inputs of a convolution.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/row_piece.h"

namespace megatron {

using kernels::RowPiece;

/// Pieces that do not overlap. An empty list stands for whole columns that begin at position 0.
/// Rows in no piece have zeros as results and as gradients.
using RowPieces = std::vector<RowPiece>;

/// Returns the pieces of x [s, b, …] as numbers {column, row, count, position, …}, for operators.
/// Throws InternalError unless they have rows, lie within x and do not overlap.
std::vector<std::int64_t> flat_pieces(const RowPieces& pieces, const at::Tensor& x);

/// Returns the pieces that flat_pieces() returned as numbers.
RowPieces pieces_of_numbers(at::IntArrayRef numbers);

/// Returns a contiguous tensor for what is computed for the rows of pieces: [s, b] of `like`, and
/// `sizes`. It holds zeros if the pieces leave out rows, else anything.
at::Tensor empty_rows(const RowPieces& pieces, const at::Tensor& like, at::IntArrayRef sizes,
                      c10::ScalarType type);

/// Returns pieces for packed documents: `document_ids` int32 [b, s] on the CPU; each run of equal
/// ids is a piece whose first row has position 0.
RowPieces document_pieces(const at::Tensor& document_ids);

}  // namespace megatron
