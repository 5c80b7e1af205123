// Pools the hidden states of a prompt, chunk by chunk, to an embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace megatron {

/// Which output rows of the final norm make an embedding.
enum class Pooling : std::uint8_t {
  none,  ///< no embedding
  mean,  ///< the mean over the tokens of the prompt
  last   ///< the row of its last token
};

/// The embedding of a prompt whose tokens are computed in passes, some of them perhaps again.
class Pooler {
 public:
  Pooler(Pooling pooling, std::int64_t num_tokens) : pooling_(pooling), num_tokens_(num_tokens) {}

  /// Returns how many of the last tokens of a pass over positions `first` to `end` have rows to
  /// add.
  std::int64_t num_rows(std::int64_t first, std::int64_t end) const;
  /// Adds these rows [rows, h], in float32 on the CPU. Sums are in double, in the order of the
  /// tokens, so that they do not depend on the chunks.
  void add(const at::Tensor& rows);
  /// Returns the embedding [h], of length 1 if `normalizes`, when all rows are there.
  std::vector<float> embedding(bool normalizes) const;

 private:
  Pooling pooling_;
  std::int64_t num_tokens_, num_added_ = 0;
  std::vector<double> sums_;
};

}  // namespace megatron
