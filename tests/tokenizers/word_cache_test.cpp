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

}  // namespace
}  // namespace megatron
