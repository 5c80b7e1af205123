// Compares the vocabularies and merges of two tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/tokenizers/inspection/tokenizer_description.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// A token with its ids in both tokenizers.
struct MovedToken {
  std::string token;
  std::int32_t id_a = -1, id_b = -1;
};

/// The first place where two lists of merges differ; "": the list has ended.
struct MergeDifference {
  std::int64_t index = 0;
  std::string merge_a, merge_b;
};

struct VocabularyComparison {
  std::vector<std::string> only_a, only_b;  ///< in the order of their ids
  std::vector<MovedToken> moved;            ///< in the order of the ids of A
  std::int64_t num_common = 0;
  bool compares_texts = false;  ///< the spellings differ, so tokens are compared by their texts
  std::int64_t num_merges_a = 0, num_merges_b = 0;  ///< 0 without a list of merges
  std::int64_t num_merges_only_a = 0, num_merges_only_b = 0;
  std::optional<MergeDifference> first_merge = {};  ///< unset: the merges are the same

  bool is_same() const { return only_a.empty() && only_b.empty() && moved.empty() && !first_merge; }
};

/// One of the tokenizers to compare.
struct ComparedTokenizer {
  const Tokenizer& tokenizer;
  TokenSpelling spelling;
  std::vector<std::string> merges;  ///< merges_of()
};

VocabularyComparison compare_vocabularies(const ComparedTokenizer& a, const ComparedTokenizer& b);

}  // namespace megatron
