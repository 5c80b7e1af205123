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

}  // namespace
}  // namespace megatron
