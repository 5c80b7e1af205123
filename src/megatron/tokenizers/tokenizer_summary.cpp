#include "megatron/tokenizers/tokenizer_summary.h"

#include <unordered_map>

namespace megatron {
namespace {

/// Returns the least id of each token.
std::unordered_map<std::string, std::int32_t> ids_of(const Tokenizer& tokenizer) {
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (std::string token = tokenizer.token(id); !token.empty()) ids.emplace(std::move(token), id);
  return ids;
}

}  // namespace

TokenizerSummary summarize(const Tokenizer& tokenizer) {
  TokenizerSummary summary;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string token = tokenizer.token(id);
    if (token.empty()) continue;
    ++summary.num_tokens;
    if (tokenizer.is_special(id)) summary.special_tokens.push_back({id, std::move(token)});
  }
  return summary;
}

VocabularyComparison compare_vocabularies(const Tokenizer& a, const Tokenizer& b) {
  VocabularyComparison result;
  const auto ids_a = ids_of(a), ids_b = ids_of(b);
  for (std::int32_t id = 0; id < a.vocab_size(); ++id) {
    const std::string token = a.token(id);
    if (token.empty() || ids_a.at(token) != id) continue;
    const auto found = ids_b.find(token);
    if (found == ids_b.end()) {
      result.only_a.push_back(token);
      continue;
    }
    ++result.num_common;
    if (found->second != id) result.moved.push_back({token, id, found->second});
  }
  for (std::int32_t id = 0; id < b.vocab_size(); ++id) {
    const std::string token = b.token(id);
    if (!token.empty() && ids_b.at(token) == id && !ids_a.contains(token))
      result.only_b.push_back(token);
  }
  return result;
}

}  // namespace megatron
