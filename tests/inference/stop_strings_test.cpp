#include "megatron/inference/sampling/stop_strings.h"

#include <gtest/gtest.h>

#include "inference/byte_pieces.h"

namespace megatron {
namespace {

using Texts = std::vector<std::string>;

TEST(StopStrings, HoldBackWhatMayBeginOne) {
  StopStrings stops({"</s>", "<end>"});
  EXPECT_EQ(stops.add("one <"), "one ");
  EXPECT_EQ(stops.add("/"), "");
  EXPECT_EQ(stops.add("b> two<e"), "</b> two");
  EXPECT_EQ(stops.add("nd"), "");
  EXPECT_EQ(stops.add("> three"), "");
  EXPECT_TRUE(stops.has_stopped());
  EXPECT_EQ(stops.num_cut_bytes(), std::string("<end> three").size());
  EXPECT_EQ(stops.stop_string(), "<end>");
  EXPECT_EQ(stops.add("more"), "");
  EXPECT_EQ(stops.num_cut_bytes(), std::string("<end> threemore").size());
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, AreShownIfTheyAreAsked) {
  StopStrings stops({"</s>"}, /*keeps_stop=*/true);
  EXPECT_EQ(stops.add("one <"), "one ");
  EXPECT_EQ(stops.add("/s> two"), "</s>");
  EXPECT_TRUE(stops.has_stopped());
  EXPECT_EQ(stops.num_cut_bytes(), std::string(" two").size());
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, FinishGivesWhatWasHeldBack) {
  StopStrings stops({"abc"});
  EXPECT_EQ(stops.add("xab"), "x");
  EXPECT_EQ(stops.finish(), "ab");
  EXPECT_FALSE(stops.has_stopped());
}

TEST(StopStrings, OverlappingBeginsAreFound) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.add("a") + stops.add("a") + stops.add("a"), "a");
  EXPECT_EQ(stops.add("b"), "");
  EXPECT_TRUE(stops.has_stopped());
}

// Every cut of a text into pieces gives the same result.
TEST(StopStrings, PiecesDoNotMatter) {
  struct Case {
    Texts stops;
    std::string text, shown;
    bool has_stopped;
  };
  const std::vector<Case> cases{{{"abc", "b"}, "zabcb", "za", true},
                                {{"bc", "abc"}, "zabc", "z", true},
                                {{"abcd", "bc"}, "zabcd", "za", true},
                                {{"aba", "bab"}, "xxabab", "xx", true},
                                {{"\xC3\xA9t"}, "\xC3\xA9\xC3\xA9t", "\xC3\xA9", true},
                                {{"abc"}, "ababab", "ababab", false}};
  for (const Case& one : cases) {
    for (unsigned cuts = 0; cuts < 1u << (one.text.size() - 1); ++cuts) {
      StopStrings stops(one.stops);
      std::string shown, piece;
      for (std::size_t i = 0; i < one.text.size(); ++i) {
        piece += one.text[i];
        if (i + 1 < one.text.size() && (cuts >> i & 1) == 0) continue;
        shown += stops.add(piece);
        piece.clear();
      }
      shown += stops.finish();
      EXPECT_EQ(shown, one.shown) << one.text << " " << cuts;
      EXPECT_EQ(stops.has_stopped(), one.has_stopped);
      EXPECT_EQ(stops.num_cut_bytes(), one.has_stopped ? one.text.size() - one.shown.size() : 0u);
    }
  }
}

TEST(StopStrings, MayBeginButNotEndBeforeTheMinimum) {
  StopStrings stops({"ab"});
  EXPECT_EQ(stops.add("ab", false), "ab");
  EXPECT_EQ(stops.add("xa", false), "x");
  EXPECT_EQ(stops.add("b"), "");
  EXPECT_TRUE(stops.has_stopped());
}

TEST(GeneratedText, FindsStopStringsOverTokensAndPartsOfCharacters) {
  // "naïve café" with both accented letters cut.
  const BytePieces tokenizer(
      {"na", "\xC3", "\xAF", "ve c", "af\xC3", "\xA9", "!", "\xE2\x82", "\xAC"});
  const std::vector<std::int64_t> prompt{6}, ids{0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto shown = [&](const Texts& stops, std::size_t& num_cut_bytes) {
    GeneratedText stream(tokenizer, prompt, {.stop = stops});
    std::string text;
    for (const std::int64_t id : ids) {
      text += stream.add(id);
      if (stream.has_stopped()) break;
    }
    text += stream.finish();
    num_cut_bytes = stream.num_cut_bytes();
    return text;
  };
  std::size_t cut = 0;
  EXPECT_EQ(shown({"\xC3\xA9"}, cut), "na\xC3\xAFve caf");
  EXPECT_EQ(cut, 2u);
  EXPECT_EQ(shown({"\xC3\xAFv"}, cut), "na");
  EXPECT_EQ(cut, std::string("\xC3\xAFve c").size());
  EXPECT_EQ(shown({"caf\xC3\xA9!\xE2\x82\xAC"}, cut), "na\xC3\xAFve ");
  EXPECT_EQ(shown({"!?"}, cut), "na\xC3\xAFve caf\xC3\xA9!\xE2\x82\xAC");
  EXPECT_EQ(cut, 0u);
}

}  // namespace
}  // namespace megatron
