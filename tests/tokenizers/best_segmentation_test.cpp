// Compares with the search written out over the whole text.
#include "megatron/tokenizers/best_segmentation.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace megatron {
namespace {

const std::map<std::string, float> kScores = {
    {"a", -1.5F},  {"b", -2.25F},  {"ab", -3.1F},   {"ba", -3.3F},  {"aba", -4.7F},
    {"ü", -2.5F},  {"aü", -3.2F},  {"üb", -4.9F},   {"_", -0.7F},   {"_a", -1.9F},
    {"_b", -2.8F}, {"_ab", -3.4F}, {"_baü", -6.3F}, {"_ü", -2.95F}, {"bbbbbbbbbb", -20.5F}};
constexpr float kUnknownScore = -12.5F;
constexpr std::size_t kNone = ~std::size_t{0};

class BestSegmentations : public ::testing::Test {
 protected:
  BestSegmentations() {
    std::int32_t id = 0;
    for (const auto& [piece, score] : kScores) {
      trie_.add(piece, id++);
      scores_.push_back(score);
    }
    trie_.finish();
  }

  std::vector<TextPart> found(std::string_view text) const {
    std::vector<TextPart> parts;
    BestSegmentation<float>().run(
        trie_, text, [&](std::int32_t id) { return scores_[static_cast<std::size_t>(id)]; },
        kUnknownScore, [](std::string_view) { return -1; },
        [&](const TextPart& part) { parts.push_back(part); });
    return parts;
  }

  /// The ends of the parts of the best segmentation.
  static std::vector<std::size_t> expected(const std::string& text) {
    std::vector<float> sums(text.size() + 1);
    std::vector<std::size_t> begins(text.size() + 1, kNone);
    begins[0] = 0;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t after = at;
      next_code_point(text, after);
      const auto offer = [&](std::size_t end, float sum) {
        if (begins[end] != kNone && sum <= sums[end]) return;
        begins[end] = at;
        sums[end] = sum;
      };
      for (const auto& [piece, score] : kScores)
        if (text.compare(at, piece.size(), piece) == 0) offer(at + piece.size(), score + sums[at]);
      if (!kScores.contains(text.substr(at, after - at))) offer(after, kUnknownScore + sums[at]);
      at = after;
    }
    std::vector<std::size_t> ends;
    for (std::size_t end = text.size(); end > 0; end = begins[end]) ends.push_back(end);
    std::ranges::reverse(ends);
    return ends;
  }

  void compare(const std::string& text) const {
    std::vector<std::size_t> ends;
    std::size_t end = 0;
    for (const TextPart& part : found(text)) {
      ASSERT_EQ(part.begin, end);
      end = part.end;
      ends.push_back(end);
      const auto score = kScores.find(text.substr(part.begin, part.end - part.begin));
      const auto number = std::distance(kScores.begin(), score);
      ASSERT_EQ(part.id, score == kScores.end() ? -1 : number);
    }
    ASSERT_EQ(ends, expected(text));
  }

  CharacterTrie trie_;
  std::vector<float> scores_;
};

TEST_F(BestSegmentations, HaveTheHighestSumInTextsOfManyWindows) {
  std::mt19937 random(5);
  const std::vector<std::string> letters = {"a", "b", "ü", "_", "a", "b", "ab", "x"};
  for (const std::size_t size : {0, 1, 30, 200'000}) {
    std::string text;
    while (text.size() < size) text += letters[random() % letters.size()];
    compare(text);
  }
}

TEST(BestSegmentation, PrefersTheLongerLastPartOfEqualSumsWhateverWasSearchedBefore) {
  CharacterTrie trie;
  trie.add("a", 0);
  trie.add("b", 1);
  trie.add("ab", 2);
  trie.finish();
  BestSegmentation<float> search;
  const auto ids = [&](std::string_view text) {
    std::vector<std::int32_t> found;
    const float sum = search.run(
        trie, text, [](std::int32_t id) { return id == 2 ? -2.0F : -1.0F; }, -9.0F,
        [](std::string_view) { return -1; },
        [&](const TextPart& part) { found.push_back(part.id); }, -8.0F);
    EXPECT_EQ(sum, -8.0F - static_cast<float>(text.size()));
    return found;
  };
  EXPECT_EQ(ids("abab"), (std::vector{2, 2}));
  EXPECT_EQ(ids("ba"), (std::vector{1, 0}));
  EXPECT_EQ(ids("ab"), (std::vector{2}));
}

/// Every place is inside of a piece, so that nothing is found before the end of the text.
TEST_F(BestSegmentations, ReachOverTheWholeText) {
  compare(std::string(150'000, 'b'));
  std::string text;
  while (text.size() < 150'000) text += "ab";
  compare(text + "_" + text);
}

/// A piece longer than a window makes the search read far ahead. What it has read moves only when
/// less moves than is forgotten: otherwise this would take minutes.
TEST(BestSegmentation, TakesLinearTimeWithAGiantPiece) {
  constexpr std::size_t kGiant = 4'000'000;
  const std::string giant(kGiant, 'g');
  CharacterTrie trie;
  trie.add("a", 0);
  trie.add(giant, 1);
  trie.finish();
  std::vector<std::size_t> num_parts(2);
  BestSegmentation<float>().run(
      trie, std::string(kGiant, 'a') + giant + "a", [](std::int32_t) { return -1.0F; }, -9.0F,
      [](std::string_view) { return -1; },
      [&](const TextPart& part) { ++num_parts[static_cast<std::size_t>(part.id)]; });
  EXPECT_EQ(num_parts, (std::vector<std::size_t>{kGiant + 1, 1}));
}

}  // namespace
}  // namespace megatron
