// What a tokenizer's vocabulary holds, and how those of two differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct NamedToken {
  std::int32_t id = -1;
  std::string token;
};

struct TokenizerSummary {
  std::int64_t num_tokens = 0;  ///< an id without a token is not counted
  std::vector<NamedToken> special_tokens;
};

TokenizerSummary summarize(const Tokenizer& tokenizer);

/// A token with its ids in both tokenizers.
struct MovedToken {
  std::string token;
  std::int32_t id_a = -1, id_b = -1;
};

/// Tokens are compared as their files write them.
struct VocabularyComparison {
  std::vector<std::string> only_a, only_b;  ///< in the order of their ids
  std::vector<MovedToken> moved;            ///< in the order of the ids of A
  std::int64_t num_common = 0;

  bool is_same() const { return only_a.empty() && only_b.empty() && moved.empty(); }
};

VocabularyComparison compare_vocabularies(const Tokenizer& a, const Tokenizer& b);

}  // namespace megatron
