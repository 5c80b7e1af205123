// The vocabulary with which the training of BPE begins: special tokens and the alphabet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/tokenizers/training/bpe_trainer.h"

namespace megatron {

/// Tokens and their ids, in the order in which they are added.
class GrowingVocabulary {
 public:
  /// Returns the id of the token, which is added if it is new.
  std::uint32_t add(std::string_view token);
  bool contains(const std::string& token) const { return ids_.contains(token); }
  const std::string& token(std::uint32_t id) const { return tokens_[id]; }
  std::size_t size() const { return tokens_.size(); }
  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

/// Words as sequences of ids: those of word i are symbols[starts[i]…starts[i + 1]).
struct SymbolWords {
  std::vector<std::uint32_t> symbols;
  std::vector<std::uint64_t> starts;
};

/// Fills `vocabulary` with the special tokens and the alphabet of `words`, and writes the words
/// with them. Characters outside the alphabet are left out of their words.
SymbolWords make_symbols(std::span<const CountedWord> words, const BpeTrainerOptions& options,
                         GrowingVocabulary& vocabulary);

}  // namespace megatron
