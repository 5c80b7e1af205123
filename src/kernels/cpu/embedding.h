// Rows of embedding tables: looked up and added to a position's in one pass, and their gradients
// added in one order.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// A table [count, columns] whose rows are those from `first` on of the whole one; other ids stand
/// for zeros.
struct EmbeddingTable {
  const void* rows;
  const std::int64_t* ids;  ///< of each token
  std::int64_t first, count;
};

/// out [tokens, columns] = the rows of `words` + those of `positions` (none where its rows are
/// null), rounded once.
struct EmbeddingArguments {
  EmbeddingTable words, positions;
  Type table_type;  ///< of both
  void* out;
  Type out_type;  ///< that of the tables, or one of them f32 and the other 16 bits wide
  std::int64_t columns;
};

/// gradient[ids[t] − first] += dy[t] for the tokens t in ascending order; dy [tokens, columns].
struct EmbeddingGradientArguments {
  const void* dy;
  Type dy_type;
  void* gradient;
  Type gradient_type;  ///< that of dy, or one of them f32 and the other 16 bits wide
  const std::int64_t* ids;
  std::int64_t first, count;
  std::int64_t tokens, columns;
};

struct EmbeddingKernels {
  void (*look_up)(const EmbeddingArguments&, std::int64_t begin,
                  std::int64_t end);  ///< tokens [begin, end)
  void (*add_rows)(const EmbeddingGradientArguments&, std::int64_t begin,
                   std::int64_t end);  ///< columns [begin, end), all tokens
};

/// The table for this CPU.
const EmbeddingKernels& embedding_kernels();

}  // namespace megatron::kernels
