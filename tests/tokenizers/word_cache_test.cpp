#include "megatron/tokenizers/word_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using ::testing::ElementsAre;

TEST(WordCache, KeepsPartsApartFromWords) {
  WordCache& cache = WordCache::of_thread(WordCache::new_owner());
  std::vector<std::int32_t> ids;
  int calls = 0;
  const auto word = [&](std::string_view) { ids.push_back(++calls); };
  cache.encode("中文", {0, 6}, ids, word);
  cache.encode_part("中文", {0, 6}, ids, word);
  cache.encode("中文", {0, 6}, ids, word);
  cache.encode_part("x中文", {1, 7}, ids, word);
  EXPECT_THAT(ids, ElementsAre(1, 2, 1, 2));
}

TEST(WordCache, KeepsShortWordsOfManyIdsAndLongWords) {
  WordCache& cache = WordCache::of_thread(WordCache::new_owner());
  int calls = 0;
  for (const std::string& word : {std::string("f(x)[i]"), std::string(60, 'x')}) {
    for (int again = 0; again < 2; ++again) {
      std::vector<std::int32_t> ids = {7};
      cache.prefetch(word, {0, word.size()});
      cache.encode(word, {0, word.size()}, ids, [&](std::string_view text) {
        EXPECT_EQ(text, word);
        ++calls;
        ids.insert(ids.end(), {1, 2, 3, 4, 5});
      });
      EXPECT_THAT(ids, ElementsAre(7, 1, 2, 3, 4, 5));
    }
  }
  EXPECT_EQ(calls, 2);
}

/// Returns whether the owner's cache knew the word; it knows it from now on.
bool knew(std::uint64_t owner) {
  std::vector<std::int32_t> ids;
  bool is_known = true;
  WordCache::of_thread(owner).encode("word", {0, 4}, ids, [&](std::string_view) {
    is_known = false;
    ids.push_back(static_cast<std::int32_t>(owner));
  });
  EXPECT_THAT(ids, ElementsAre(static_cast<std::int32_t>(owner)));
  return is_known;
}

TEST(WordCache, ServesTwoTokenizersInTurn) {
  const std::uint64_t a = WordCache::new_owner(), b = WordCache::new_owner(),
                      c = WordCache::new_owner();
  EXPECT_FALSE(knew(a));
  EXPECT_FALSE(knew(b));
  EXPECT_TRUE(knew(a));
  EXPECT_TRUE(knew(b));
  EXPECT_FALSE(knew(c));  // takes the place of a
  EXPECT_TRUE(knew(b));
  EXPECT_FALSE(knew(a));
}

}  // namespace
}  // namespace megatron
