// Checks the trie of pieces against a list of them.
#include "megatron/tokenizers/piece_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace megatron {
namespace {

using Found = std::vector<std::pair<std::size_t, std::int32_t>>;

Found prefixes(const PieceTrie& trie, std::string_view text) {
  Found found;
  trie.for_each_prefix(
      text, [&](std::size_t length, std::int32_t id) { found.emplace_back(length, id); });
  return found;
}

Found prefixes_by_definition(const std::map<std::string, std::int32_t>& pieces,
                             const std::string& text) {
  Found found;
  for (std::size_t length = 1; length <= text.size(); ++length)
    if (const auto piece = pieces.find(text.substr(0, length)); piece != pieces.end())
      found.emplace_back(length, piece->second);
  return found;
}

/// Texts of letters from a small or a large alphabet, with NUL and bytes above ASCII.
std::string random_text(std::mt19937& random, unsigned num_letters, std::size_t longest) {
  std::string text;
  const std::size_t size = 1 + random() % longest;
  for (std::size_t i = 0; i < size; ++i)
    text += static_cast<char>(num_letters <= 4 ? "a\0\xFFz"[random() % num_letters]
                                               : random() % num_letters);
  return text;
}

TEST(PieceTrie, FindsAllPiecesThatATextBeginsWith) {
  std::mt19937 random(7);
  for (const unsigned num_letters : {1u, 2u, 4u, 40u, 256u}) {
    for (const std::size_t count : {1, 2, 20, 300, 5000}) {
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < count; ++i) texts.push_back(random_text(random, num_letters, 12));
      std::map<std::string, std::int32_t> pieces;
      PieceTrie trie;
      for (std::size_t i = 0; i < count; ++i) {  // some texts are there several times
        const auto id = static_cast<std::int32_t>(i);
        trie.add(texts[i], id);
        pieces[texts[i]] = id;
      }
      trie.finish();
      for (int i = 0; i < 300; ++i) {
        std::string text = texts[random() % count].substr(0, 1 + random() % 12);
        text += random_text(random, num_letters, 8);
        ASSERT_EQ(prefixes(trie, text), prefixes_by_definition(pieces, text)) << text;
      }
    }
  }
}

TEST(PieceTrie, KeepsNoTextsOfItsCaller) {
  PieceTrie trie;
  {
    const std::vector<std::string> texts = {"short", "a piece of more than eight bytes"};
    trie.add(texts[0], 4);
    trie.add(texts[1], 5);
    trie.finish();
  }
  EXPECT_EQ(prefixes(trie, "shorter"), (Found{{5, 4}}));
  const std::string_view whole = "a piece of more than eight bytes";
  EXPECT_EQ(prefixes(trie, whole), (Found{{32, 5}}));
  EXPECT_EQ(prefixes(trie, whole.substr(0, 31)), (Found{}));
}

TEST(PieceTrie, HoldsPiecesLongerThanAStackIsDeep) {
  const std::string longest(1 << 20, 'x');
  PieceTrie trie;
  trie.add(longest, 1);
  trie.add(std::string_view(longest).substr(1), 0);
  trie.finish();
  EXPECT_EQ(prefixes(trie, longest), (Found{{longest.size() - 1, 0}, {longest.size(), 1}}));
}

TEST(PieceTrie, WithoutPiecesFindsNone) {
  PieceTrie trie;
  trie.finish();
  EXPECT_EQ(prefixes(trie, "text"), (Found{}));
}

}  // namespace
}  // namespace megatron
