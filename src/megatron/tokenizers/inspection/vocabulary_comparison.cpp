#include "megatron/tokenizers/inspection/vocabulary_comparison.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace megatron {
namespace {

/// Returns the tokens by id; "" where there is none.
std::vector<std::string> tokens_of(const ComparedTokenizer& compared, bool as_texts) {
  std::vector<std::string> tokens;
  for (std::int32_t id = 0; id < compared.tokenizer.vocab_size(); ++id) {
    std::string token = compared.tokenizer.token(id);
    const bool is_plain = compared.tokenizer.is_special(id);
    tokens.push_back(as_texts && !is_plain ? token_text(token, compared.spelling)
                                           : std::move(token));
  }
  return tokens;
}

std::int64_t count_missing(const std::vector<std::string>& merges,
                           const std::vector<std::string>& others) {
  const std::unordered_set<std::string> known(others.begin(), others.end());
  return std::ranges::count_if(merges, [&](const std::string& m) { return !known.contains(m); });
}

void compare_merges(const std::vector<std::string>& a, const std::vector<std::string>& b,
                    VocabularyComparison& result) {
  result.num_merges_a = static_cast<std::int64_t>(a.size());
  result.num_merges_b = static_cast<std::int64_t>(b.size());
  if (a.empty() || b.empty() || a == b) return;
  const auto [at_a, at_b] = std::ranges::mismatch(a, b);
  result.first_merge = {.index = at_a - a.begin(),
                        .merge_a = at_a == a.end() ? "" : *at_a,
                        .merge_b = at_b == b.end() ? "" : *at_b};
  result.num_merges_only_a = count_missing(a, b);
  result.num_merges_only_b = count_missing(b, a);
}

}  // namespace

VocabularyComparison compare_vocabularies(const ComparedTokenizer& a, const ComparedTokenizer& b) {
  VocabularyComparison result{.compares_texts = a.spelling != b.spelling};
  const std::vector<std::string> tokens_a = tokens_of(a, result.compares_texts),
                                 tokens_b = tokens_of(b, result.compares_texts);
  std::unordered_map<std::string, std::int32_t> ids_b;
  for (std::size_t id = 0; id < tokens_b.size(); ++id)
    if (!tokens_b[id].empty()) ids_b.try_emplace(tokens_b[id], static_cast<std::int32_t>(id));
  std::unordered_set<std::string> known_a;
  for (std::size_t id = 0; id < tokens_a.size(); ++id) {
    const std::string& token = tokens_a[id];
    if (token.empty() || !known_a.insert(token).second) continue;
    const auto found = ids_b.find(token);
    if (found == ids_b.end()) {
      result.only_a.push_back(token);
      continue;
    }
    ++result.num_common;
    const auto id_a = static_cast<std::int32_t>(id);
    if (found->second != id_a) result.moved.push_back({token, id_a, found->second});
  }
  for (const std::string& token : tokens_b)
    if (!token.empty() && known_a.insert(token).second) result.only_b.push_back(token);
  compare_merges(a.merges, b.merges, result);
  return result;
}

}  // namespace megatron
