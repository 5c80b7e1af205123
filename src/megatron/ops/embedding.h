// Looks up rows of embedding tables, and adds gradients of rows to a table's gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace megatron {

/// Token ids and this rank's part [rows, h] of the table that they index. Undefined tensors mean no
/// table.
struct EmbeddingRows {
  at::Tensor table;
  at::Tensor ids;             ///< int64 of any shape
  std::int64_t first = 0;     ///< index of the part's first row in the whole table
  std::int64_t num_rows = 0;  ///< rows of the whole table
  static auto members(auto& r) { return std::tie(r.table, r.ids, r.first, r.num_rows); }
};

/// Returns rows of `words` plus rows of `positions`, [ids..., h] in dtype `type`, rounded once.
/// Rows that another rank holds are zero. An id outside the whole table throws InternalError on the
/// CPU and gives NaN elsewhere.
at::Tensor embedding(const EmbeddingRows& words, const EmbeddingRows& positions,
                     c10::ScalarType type);

/// Adds the rows of dy [tokens, h] to grad[id − first] in the order of tokens. `ids` is int64
/// [tokens].
void embedding_backward_(at::Tensor& grad, const at::Tensor& ids, const at::Tensor& dy,
                         std::int64_t first);

}  // namespace megatron
