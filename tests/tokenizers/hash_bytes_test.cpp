// Texts of random bytes: keys and comparisons must tell what the texts tell.
#include "megatron/tokenizers/hash_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace megatron {
namespace {

/// Texts that differ from one another in few bytes.
std::vector<std::string> similar_texts() {
  std::vector<std::string> texts;
  std::mt19937 random(3);
  for (std::size_t size = 0; size <= 20; ++size) {
    const std::string text(size, 'x');
    texts.push_back(text);
    for (std::size_t at = 0; at < size; ++at) {
      texts.push_back(text);
      texts.back()[at] = static_cast<char>(random());
    }
  }
  return texts;
}

TEST(TextKey, IsThatOfEqualTexts) {
  const std::vector<std::string> texts = similar_texts();
  for (const std::string& a : texts)
    for (const std::string& b : texts) {
      EXPECT_EQ(TextKey::of(a) == TextKey::of(b), a == b) << a << " and " << b;
      EXPECT_EQ(TextKey::of(a).is_text(), a.size() <= 8);
    }
}

TEST(SameBytes, ComparesTextsOfOneSize) {
  const std::vector<std::string> texts = similar_texts();
  for (const std::string& a : texts)
    for (const std::string& b : texts)
      if (a.size() == b.size()) {
        EXPECT_EQ(same_bytes(a.data(), b.data(), a.size()), a == b) << a << " and " << b;
      }
}

}  // namespace
}  // namespace megatron
