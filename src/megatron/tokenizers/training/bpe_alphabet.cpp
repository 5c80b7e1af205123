#include "megatron/tokenizers/training/bpe_alphabet.h"

#include <algorithm>
#include <limits>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using Counts = std::unordered_map<char32_t, std::int64_t>;

std::string text_of(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

/// Returns the characters of the vocabulary in the order of their code points.
std::vector<char32_t> alphabet_of(Counts counts, const BpeTrainerOptions& options) {
  for (const char32_t c : options.initial_alphabet)
    counts[c] = std::numeric_limits<std::int64_t>::max();
  std::vector<char32_t> kept;
  for (const auto& [c, count] : counts) kept.push_back(c);
  if (options.limit_alphabet && static_cast<std::int64_t>(kept.size()) > *options.limit_alphabet) {
    std::ranges::sort(kept, [&](char32_t a, char32_t b) {
      return counts.at(a) != counts.at(b) ? counts.at(a) > counts.at(b) : a < b;
    });
    kept.resize(static_cast<std::size_t>(*options.limit_alphabet));
  }
  std::ranges::sort(kept);
  return kept;
}

/// The ids of a character at the beginning of a word and after it.
struct CharacterIds {
  static constexpr std::uint32_t kNone = ~0u;
  std::uint32_t first = kNone, following = kNone;
};

Counts count_characters_of(std::span<const CountedWord> words) {
  Counts counts;
  std::int64_t ascii[128] = {};
  for (const CountedWord& word : words) {
    for (std::size_t i = 0; i < word.word.size();) {
      const char32_t c = next_code_point(word.word, i);
      (c < 128 ? ascii[c] : counts[c]) += word.count;
    }
  }
  for (char32_t c = 0; c < 128; ++c)
    if (ascii[c] > 0) counts[c] = ascii[c];
  return counts;
}

/// Returns the characters that follow another one in some word.
std::vector<char32_t> following_characters(std::span<const CountedWord> words) {
  std::unordered_map<char32_t, bool> found;
  for (const CountedWord& word : words) {
    for (std::size_t i = 0; i < word.word.size();) {
      const bool is_first = i == 0;
      const char32_t c = next_code_point(word.word, i);
      if (!is_first) found[c] = true;
    }
  }
  std::vector<char32_t> characters;
  for (const auto& [c, is_found] : found) characters.push_back(c);
  std::ranges::sort(characters);
  return characters;
}

}  // namespace

std::uint32_t GrowingVocabulary::add(std::string_view token) {
  const auto [place, is_new] =
      ids_.try_emplace(std::string(token), static_cast<std::uint32_t>(tokens_.size()));
  if (is_new) tokens_.emplace_back(token);
  return place->second;
}

SymbolWords make_symbols(std::span<const CountedWord> words, const BpeTrainerOptions& options,
                         GrowingVocabulary& vocabulary) {
  for (const std::string& token : options.special_tokens) vocabulary.add(token);
  const Counts counts = count_characters_of(words);
  for (const char32_t c : alphabet_of(counts, options)) vocabulary.add(text_of(c));
  std::unordered_map<char32_t, CharacterIds> ids;
  for (const auto& [c, count] : counts) {
    const std::string text = text_of(c);
    if (!vocabulary.contains(text)) continue;
    const std::uint32_t id = vocabulary.add(text);
    ids[c] = {id, id};
  }
  if (!options.continuing_subword_prefix.empty()) {
    for (const char32_t c : following_characters(words))
      if (const auto found = ids.find(c); found != ids.end())
        found->second.following = vocabulary.add(options.continuing_subword_prefix + text_of(c));
  }
  CharacterIds table[128];
  for (const auto& [c, both] : ids)
    if (c < 128) table[c] = both;
  SymbolWords result;
  result.starts.reserve(words.size() + 1);
  result.starts.push_back(0);
  for (const CountedWord& word : words) {
    for (std::size_t i = 0; i < word.word.size();) {
      const bool is_first = i == 0;
      const char32_t c = next_code_point(word.word, i);
      CharacterIds both;
      if (c < 128) {
        both = table[c];
      } else if (const auto found = ids.find(c); found != ids.end()) {
        both = found->second;
      }
      if (both.first == CharacterIds::kNone) continue;
      result.symbols.push_back(is_first ? both.first : both.following);
    }
    result.starts.push_back(result.symbols.size());
  }
  return result;
}

}  // namespace megatron
