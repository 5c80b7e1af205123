// Embedding tables: adds a token's row and its position's row in one pass, and adds gradients in
// one fixed order.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// The rows [first, first + count) of an embedding table, [count, columns]. Ids outside of them
/// stand for rows of zeros.
struct EmbeddingTable {
  const void* rows;
  const std::int64_t* ids;  ///< one for each token
  std::int64_t first, count;
};

/// out [tokens, columns] = rows of `words` + rows of `positions`, rounded once. `positions` has
/// null rows when the model has no learned positions.
struct EmbeddingArguments {
  EmbeddingTable words, positions;
  Type table_type;  ///< type of both tables
  void* out;
  Type out_type;  ///< equal to table_type, or one is f32 and the other 16 bits wide
  std::int64_t columns;
};

/// gradient[ids[t] − first] += dy[t] for the tokens t in ascending order. dy is [tokens, columns].
struct EmbeddingGradientArguments {
  const void* dy;
  Type dy_type;
  void* gradient;
  Type gradient_type;  ///< equal to dy_type, or one is f32 and the other 16 bits wide
  const std::int64_t* ids;
  std::int64_t first, count;
  std::int64_t tokens, columns;
};

/// The embedding kernels of one instruction set.
struct EmbeddingKernels {
  /// Runs on tokens [begin, end).
  void (*look_up)(const EmbeddingArguments&, std::int64_t begin, std::int64_t end);
  /// Runs on columns [begin, end), all tokens.
  void (*add_rows)(const EmbeddingGradientArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const EmbeddingKernels& embedding_kernels();

}  // namespace megatron::kernels
