#include "megatron/ops/row_pieces.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <tuple>

#include "megatron/base/error.h"

namespace megatron {

std::vector<std::int64_t> flat_pieces(const RowPieces& pieces, const at::Tensor& x) {
  std::vector<std::int64_t> numbers;
  if (pieces.empty()) {
    for (std::int64_t column = 0; column < x.size(1) && x.size(0) > 0; ++column)
      numbers.insert(numbers.end(), {column, 0, x.size(0), 0});
    return numbers;
  }
  RowPieces sorted = pieces;
  std::sort(sorted.begin(), sorted.end(), [](const RowPiece& a, const RowPiece& b) {
    return std::tie(a.column, a.row) < std::tie(b.column, b.row);
  });
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [column, row, count, position] = sorted[i];
    MEGATRON_CHECK(column >= 0 && column < x.size(1) && row >= 0 && count > 0 && position >= 0 &&
                       row + count <= x.size(0),
                   "a piece of ", count, " rows from row ", row, " of column ", column, " in ",
                   x.sizes());
    MEGATRON_CHECK(
        i == 0 || sorted[i - 1].column < column || sorted[i - 1].row + sorted[i - 1].count <= row,
        "two pieces with row ", row, " of column ", column);
  }
  for (const auto& [column, row, count, position] : pieces)
    numbers.insert(numbers.end(), {column, row, count, position});
  return numbers;
}

RowPieces pieces_of_numbers(at::IntArrayRef numbers) {
  RowPieces pieces;
  for (std::size_t i = 0; i + 3 < numbers.size(); i += 4)
    pieces.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return pieces;
}

at::Tensor empty_rows(const RowPieces& pieces, const at::Tensor& like, at::IntArrayRef sizes,
                      c10::ScalarType type) {
  std::int64_t rows = 0;
  for (const RowPiece& piece : pieces) rows += piece.count;
  at::DimVector shape{like.size(0), like.size(1)};
  shape.append(sizes.begin(), sizes.end());
  at::Tensor result = at::empty(shape, like.options().dtype(type));
  if (rows < like.size(0) * like.size(1)) result.zero_();
  return result;
}

RowPieces document_pieces(const at::Tensor& document_ids) {
  MEGATRON_CHECK(document_ids.dim() == 2 && document_ids.is_cpu(), "document ids ",
                 document_ids.sizes(), " on ", document_ids.device());
  const at::Tensor ids = document_ids.to(at::kInt).contiguous();
  RowPieces pieces;
  for (std::int64_t column = 0; column < ids.size(0); ++column) {
    const std::int32_t* id = ids.const_data_ptr<std::int32_t>() + column * ids.size(1);
    for (std::int64_t row = 0; row < ids.size(1); ++row) {
      if (row == 0 || id[row] != id[row - 1]) pieces.push_back({.column = column, .row = row});
      ++pieces.back().count;
    }
  }
  return pieces;
}

}  // namespace megatron
