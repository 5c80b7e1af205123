// Texts that follow the masks of a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "megatron/grammar/grammar.h"

namespace megatron {

/// Returns tokens of all bytes, and of `more`, whose ids follow.
inline std::shared_ptr<const TokenTrie> byte_tokens(const std::vector<std::string>& more = {}) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.insert(texts.end(), more.begin(), more.end());
  return std::make_shared<const TokenTrie>(std::move(texts));
}

inline std::shared_ptr<Grammar> grammar_of(
    OutputConstraint::Kind kind, std::vector<std::string> texts,
    std::shared_ptr<const TokenTrie> tokens = byte_tokens()) {
  return std::make_shared<Grammar>(OutputConstraint{kind, std::move(texts)}, std::move(tokens));
}

/// Returns a text of random allowed tokens; nullopt if it has not ended after `most` tokens. A text
/// that may end does so in half of the cases.
inline std::optional<std::string> random_text(Grammar& grammar, std::mt19937& random,
                                              int most = 300) {
  std::string text;
  Grammar::State state = grammar.begin();
  for (int i = 0; i < most; ++i) {
    const std::shared_ptr<const TokenMask> mask = grammar.mask(state);
    if (mask->is_complete && (!mask->has_tokens || random() % 2 == 0)) return text;
    std::vector<std::int64_t> allowed, ends;
    for (std::int64_t id = 0; id < static_cast<std::int64_t>(grammar.tokens().vocab_size()); ++id) {
      if (!mask->allows(id)) continue;
      allowed.push_back(id);
      const std::string_view own = grammar.tokens().text(id);
      if (own.find_first_of("\"]}") != std::string_view::npos) ends.push_back(id);
    }
    const auto& from = !ends.empty() && random() % 3 == 0 ? ends : allowed;
    const std::int64_t id = from[random() % from.size()];
    text += grammar.tokens().text(id);
    state = grammar.advance(state, id);
  }
  return std::nullopt;
}

}  // namespace megatron
