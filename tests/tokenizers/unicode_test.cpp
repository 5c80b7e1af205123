// The expected values come from the Unicode standard, or from the `tokenizers` package where that
// uses another version.
#include "megatron/tokenizers/unicode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "helpers.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"

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

// normalization.jsonl holds random marks, Hangul and composition exclusions, normalized by the
// `tokenizers` package.
TEST(Unicode, NormalizesRandomTextsAsTheRealPackage) {
  std::istringstream lines(read_file(testing::fixture("normalization.jsonl")));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = parse_json(line, "normalization.jsonl");
    const std::string text = json.at("text");
    const auto check = [&](const char* name, NormalizationForm form) {
      const std::string expected = json.at(name);
      EXPECT_EQ(normalize_unicode(text, form), expected) << name << " of " << line;
    };
    check("nfc", NormalizationForm::nfc);
    check("nfd", NormalizationForm::nfd);
    check("nfkc", NormalizationForm::nfkc);
    check("nfkd", NormalizationForm::nfkd);
  }
  EXPECT_GE(count, 100u);
}

/// Returns the least CPU seconds that the normalization of a letter with 2 `pairs` marks takes.
double seconds_for_marks(int pairs, NormalizationForm form) {
  std::string text = "a", acutes, cedillas;
  for (int i = 0; i < pairs; ++i) {
    text += "\u0301\u0327";
    acutes += "\u0301";
    cedillas += "\u0327";
  }
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    const std::string normalized = normalize_unicode(text, form);
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    // The class of the cedilla is 202, that of the acute 230; NFC joins the letter with the first
    // mark that makes a character with it, which is U+00E1.
    const bool composes = form == NormalizationForm::nfc || form == NormalizationForm::nfkc;
    EXPECT_TRUE(normalized ==
                (composes ? "\u00e1" + cedillas + acutes.substr(2) : "a" + cedillas + acutes));
  }
  return least;
}

// Were the time quadratic, ten times the marks would take a hundred times as long.
TEST(Unicode, NormalizesLongRunsOfMarksInAboutLinearTime) {
  for (const auto form : {NormalizationForm::nfc, NormalizationForm::nfd, NormalizationForm::nfkc,
                          NormalizationForm::nfkd})
    EXPECT_LT(seconds_for_marks(40'000, form), 40 * seconds_for_marks(4'000, form));
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
