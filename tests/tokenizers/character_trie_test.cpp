// Checks the trie of characters against a list of pieces.
#include "megatron/tokenizers/character_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using Found = std::vector<std::pair<std::size_t, std::int32_t>>;

Found prefixes(const CharacterTrie& trie, std::string_view text) {
  std::u32string codes;
  for (std::size_t at = 0; at < text.size();) codes += trie.code(next_code_point(text, at));
  Found found;
  trie.for_each_prefix(
      codes, [&](std::size_t length, std::int32_t id) { found.emplace_back(length, id); });
  return found;
}

Found prefixes_by_definition(const std::map<std::string, std::int32_t>& pieces,
                             const std::string& text) {
  Found found;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size();) {
    next_code_point(text, at);
    ++length;
    if (const auto piece = pieces.find(text.substr(0, at)); piece != pieces.end())
      found.emplace_back(length, piece->second);
  }
  return found;
}

/// Returns the character with a number, from all lengths of UTF-8.
std::string character(unsigned number) {
  const char32_t c = number % 4 == 0   ? number % 128
                     : number % 4 == 1 ? 0x80 + number
                     : number % 4 == 2 ? 0x4E00 + number
                                       : 0x1F300 + number;
  std::string text;
  append_utf8(text, c);
  return text;
}

std::string random_text(std::mt19937& random, unsigned num_letters, std::size_t longest) {
  std::string text;
  const std::size_t size = 1 + random() % longest;
  for (std::size_t i = 0; i < size; ++i) text += character(random() % num_letters);
  return text;
}

TEST(CharacterTrie, FindsAllPiecesThatATextBeginsWith) {
  std::mt19937 random(7);
  for (const unsigned num_letters : {1u, 2u, 4u, 40u, 900u, 9000u}) {
    for (const std::size_t count : {1, 20, 300, 5000}) {
      std::map<std::string, std::int32_t> pieces;
      std::vector<std::string> texts;
      CharacterTrie trie;
      std::size_t longest = 0;
      for (std::size_t i = 0; i < count; ++i) {
        texts.push_back(random_text(random, num_letters, 6));
        longest = std::max(longest, count_characters(texts.back()));
        trie.add(texts.back(), static_cast<std::int32_t>(i));
        pieces[texts.back()] = static_cast<std::int32_t>(i);  // a later one replaces the id
      }
      trie.finish();
      EXPECT_EQ(trie.longest(), longest);
      for (int i = 0; i < 300; ++i) {
        const std::string text = texts[random() % count] + random_text(random, num_letters + 3, 8);
        ASSERT_EQ(prefixes(trie, text), prefixes_by_definition(pieces, text)) << text;
      }
    }
  }
}

TEST(CharacterTrie, NumbersTheCharactersOfPiecesInTheirOrder) {
  CharacterTrie trie;
  trie.add("中国", 0);
  trie.add("国a", 1);
  trie.finish();
  EXPECT_EQ(trie.code(U'中'), 1u);
  EXPECT_EQ(trie.code(U'国'), 2u);
  EXPECT_EQ(trie.code(U'a'), 3u);
  EXPECT_EQ(trie.code(U'b'), 0u);
  EXPECT_EQ(trie.code(0x10FFFF), 0u);
  EXPECT_EQ(prefixes(trie, "中国b"), (Found{{2, 0}}));
  EXPECT_EQ(prefixes(trie, "b中国"), (Found{}));
}

TEST(CharacterTrie, FindsNothingWithoutPieces) {
  CharacterTrie trie;
  trie.finish();
  EXPECT_EQ(prefixes(trie, "a"), (Found{}));
}

}  // namespace
}  // namespace megatron
