// The expected values come from the Unicode standard, or from the `tokenizers` package where that
// uses another version.
#include "megatron/tokenizers/unicode.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(Unicode, Normalizes) {
  EXPECT_EQ(normalize_unicode("e\u0301", NormalizationForm::nfc), "\u00e9");
  EXPECT_EQ(normalize_unicode("\u00e9", NormalizationForm::nfd), "e\u0301");
  EXPECT_EQ(normalize_unicode("\u1e9b\u0323", NormalizationForm::nfkc), "\u1e69");
  EXPECT_EQ(normalize_unicode("\u1e9b\u0323", NormalizationForm::nfkd), "s\u0323\u0307");
  EXPECT_EQ(normalize_unicode("\u1100\u1161\u11a8", NormalizationForm::nfc), "\uac01");
  EXPECT_EQ(normalize_unicode("\ufb01", NormalizationForm::nfc), "\ufb01");
  EXPECT_EQ(normalize_unicode("\ufb01", NormalizationForm::nfkc), "fi");
  EXPECT_EQ(normalize_unicode(std::string("a\0b", 3), NormalizationForm::nfd),
            std::string("a\0b", 3));
}

TEST(Unicode, LeavesCharactersAloneThatTheNormalizersOfThePackageDoNotKnow) {
  EXPECT_EQ(normalize_unicode("a\u1abf\u0334", NormalizationForm::nfd), "a\u1abf\u0334")
      << "U+1ABF is a combining mark since Unicode 13";
  EXPECT_EQ(normalize_unicode("\U00011935\U00011930", NormalizationForm::nfc),
            "\U00011935\U00011930");
  EXPECT_EQ(normalize_unicode("\U00011938", NormalizationForm::nfd), "\U00011938");
}

TEST(Unicode, LowersWithoutContext) {
  EXPECT_EQ(lowercase_unicode("ÀÉÎ ΣΑΣ İ K"), "àéî σασ i\u0307 k");
  EXPECT_EQ(lowercase_unicode("\u1c89"), "\u1c8a") << "Unicode 16";
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(0x85) && is_white_space(0x3000) && !is_white_space(0x180E) &&
              !is_white_space(0x200B) && !is_white_space(0x1C));
  EXPECT_TRUE(is_numeric(U'7') && is_numeric(0xBD) && is_numeric(0x2167) && !is_numeric(U'a') &&
              is_numeric(0x11DE0));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(0x2014) && !is_punctuation(0x20AC) &&
              !is_punctuation(U'a'));
  EXPECT_TRUE(is_combining_mark(0x301) && is_combining_mark(0x20DD) && !is_combining_mark(U'a'));
  EXPECT_TRUE(is_word(U'_') && is_word(0x200D) && is_word(0x24B6) && is_word(0x301) &&
              !is_word(0xBD) && !is_word(U'-'));
}

TEST(Unicode, StandsInForNewCharactersWithTheSameLength) {
  std::string storage;
  EXPECT_EQ(replace_unassigned_characters("plain \u00e9 \u65e5", storage), "plain \u00e9 \u65e5");
  EXPECT_TRUE(storage.empty());
  const std::string text = "a\u1c89\u0897\U00010d40\U0002ebf0z";
  const std::string_view known = replace_unassigned_characters(text, storage);
  EXPECT_EQ(known.size(), text.size());
  EXPECT_EQ(known.front(), 'a');
  EXPECT_EQ(known.back(), 'z');
}

}  // namespace
}  // namespace megatron
