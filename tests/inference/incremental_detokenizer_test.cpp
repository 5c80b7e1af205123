#include "megatron/inference/incremental_detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;
using testing::ElementsAre;

std::string decode_bytes(std::span<const std::int64_t> ids) { return {ids.begin(), ids.end()}; }

std::vector<std::string> pieces(IncrementalDetokenizer& stream, const std::string& bytes) {
  std::vector<std::string> result;
  for (const char byte : bytes) result.push_back(stream.add(static_cast<unsigned char>(byte)));
  result.push_back(stream.finish());
  return result;
}

TEST(IncrementalDetokenizer, HoldsAnIncompleteCharacterBack) {
  IncrementalDetokenizer stream(decode_bytes, Ids{'p'});
  EXPECT_THAT(pieces(stream, "a\xC3\xA9\xE2\x82\xAC!"),
              ElementsAre("a", "", "\xC3\xA9", "", "", "\xE2\x82\xAC", "!", ""));
}

TEST(IncrementalDetokenizer, ShowsWhatStaysIncompleteAtTheEnd) {
  IncrementalDetokenizer stream(decode_bytes, Ids{});
  EXPECT_THAT(pieces(stream, "a\xE2\x82"), ElementsAre("a", "", "", "\xE2\x82"));
}

TEST(IncrementalDetokenizer, DoesNotWaitForeverForValidText) {
  IncrementalDetokenizer stream(decode_bytes, Ids{});
  std::string shown;
  for (const std::string& piece : pieces(stream, std::string(8, '\xFF'))) shown += piece;
  EXPECT_EQ(shown, std::string(8, '\xFF'));
  EXPECT_EQ(stream.add('x'), "x");
}

TEST(IncrementalDetokenizer,
     ThePromptKeepsALeadingSpace) {  // the decoder drops the first space, as SentencePiece does
  const auto decode = [](std::span<const std::int64_t> ids) {
    std::string text;
    for (const auto id : ids) text += " word" + std::to_string(id);
    return text.empty() ? text : text.substr(1);
  };
  IncrementalDetokenizer after_prompt(decode, Ids{1, 2});
  EXPECT_EQ(after_prompt.add(3), " word3");
  EXPECT_EQ(after_prompt.add(4), " word4");
  IncrementalDetokenizer alone(decode, Ids{});
  EXPECT_EQ(alone.add(3), "word3");
  EXPECT_EQ(alone.add(4), " word4");
}

}  // namespace
}  // namespace megatron
