// Compares streams with the real package's DecodeStream (fixtures/decode_stream.jsonl by
// make_stream_fixtures.py), and with decode() of all ids.
#include "megatron/tokenizers/decode_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/utf8.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using testing::fixture;
using Ids = std::vector<std::int32_t>;

std::unique_ptr<Tokenizer> hugging_face(const std::string& name) {
  return testing::open({.tokenizer_model = fixture(name + ".json")});
}

/// Returns the text of each id, and at last the rest.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const Ids& ids,
                                   const Ids& context = {}) {
  DecodeStream stream(tokenizer, context);
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) pieces.push_back(stream.add(id));
  pieces.push_back(stream.finish());
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(DecodeStream, GivesThePiecesOfTheRealPackage) {
  std::istringstream lines(read_file(fixture("decode_stream.jsonl")));
  std::string line, model;
  std::unique_ptr<Tokenizer> tokenizer;
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    const Json expected = Json::parse(line);
    if (expected.at("model") != model) tokenizer = hugging_face(model = expected.at("model"));
    const Ids ids = expected.at("ids").get<Ids>();
    DecodeStream stream(*tokenizer);
    std::string ours, theirs;
    bool is_valid = true;  // until text that the package holds back no longer than needed
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Json& piece = expected.at("pieces").at(i);
      ours += stream.add(ids[i]);
      if (!piece.is_null()) theirs += piece.get<std::string>();
      is_valid = is_valid && !tokenizer->awaits_more(ids[i]) &&
                 theirs.find("\xEF\xBF\xBD") == std::string::npos;
      // The package holds a token back whole whose last character is incomplete.
      if (is_valid) {
        EXPECT_TRUE(piece.is_null() ? ours.starts_with(theirs) : ours == theirs) << line;
      }
    }
    EXPECT_EQ(ours + stream.finish(), tokenizer->decode(ids)) << line;
  }
  EXPECT_GT(count, 150);
}

void expect_equal_to_decode(const Tokenizer& tokenizer, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    Ids ids(1 + random() % 40);
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random() % static_cast<unsigned>(tokenizer.vocab_size()));
    const auto pieces = pieces_of(tokenizer, ids);
    EXPECT_EQ(joined(pieces), tokenizer.decode(ids)) << tokenizer.name() << " " << i;
    if (tokenizer.name() == "ByteTokenizer") continue;
    for (const std::string& piece : pieces) EXPECT_FALSE(replace_invalid_utf8(piece));
  }
}

TEST(DecodeStream, TogetherThePiecesAreTheText) {
  for (const char* name : {"gpt2", "llama2", "llama3", "qwen2", "t5", "bert", "metaspace", "strips",
                           "word_level", "flavours"})
    expect_equal_to_decode(*hugging_face(name), 1);
  for (const char* name : {"sp_bpe_bytes", "sp_bpe_symbols", "sp_unigram_bytes", "sp_bpe_unused"})
    expect_equal_to_decode(*testing::open({.tokenizer_model = fixture(name) + ".model"}), 2);
  expect_equal_to_decode(*testing::open({.tokenizer_type = "ByteTokenizer"}), 3);
  expect_equal_to_decode(*testing::open({.tokenizer_model = fixture("small.tiktoken"),
                                         .tiktoken_pattern = "cl100k_base"}),
                         4);
}

TEST(DecodeStream, LongRunsOfInvalidBytesDoNotWait) {
  const auto bytes = testing::open({.tokenizer_type = "ByteTokenizer"});
  EXPECT_THAT(pieces_of(*bytes, {'a', 0xC3, 0xA9, 0xE2, 0x82, 0xAC, '!', 0xE2, 0x82}),
              ElementsAre("a", "", "\xC3\xA9", "", "", "\xE2\x82\xAC", "!", "", "", "\xE2\x82"));
  EXPECT_THAT(pieces_of(*bytes, {0xFF, 0xC3, 'x'}), ElementsAre("\xFF", "", "\xC3x", ""));
  const auto tokenizer = hugging_face("gpt2");
  const std::int32_t id = tokenizer->encode("\xC3\xA9").front();
  DecodeStream stream(*tokenizer);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += stream.add(id);
  EXPECT_GT(text.size(), 900u);
  EXPECT_EQ(text + stream.finish(), tokenizer->decode(Ids(1000, id)));
}

TEST(DecodeStream, TheContextKeepsALeadingSpace) {
  const auto tokenizer = hugging_face("llama2");
  const Ids ids = tokenizer->encode("some words and more words");
  const Ids context(ids.begin(), ids.begin() + 4), rest(ids.begin() + 4, ids.end());
  EXPECT_EQ(tokenizer->decode(context) + joined(pieces_of(*tokenizer, rest, context)),
            tokenizer->decode(ids));
}

}  // namespace
}  // namespace megatron
