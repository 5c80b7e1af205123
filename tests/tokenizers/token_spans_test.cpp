// The places of tokens, as the real `tokenizers` package tells them; parity/offsets_parity.py
// compares many more.
#include "megatron/tokenizers/token_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/utf8.h"
#include "support/message_of.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::fixture;
using ::testing::HasSubstr;

/// Returns "text|text|…": what each token stands for.
std::string parts(const Tokenizer& tokenizer, const std::string& text) {
  std::string out;
  for (const TokenSpan& span : tokenizer.encode_with_spans(text))
    out += text.substr(span.begin, span.end - span.begin) + "|";
  return out;
}

TEST(TokenSpans, CoverTheText) {
  for (const char* name : {"gpt2.json", "small.tiktoken"}) {
    const auto tokenizer = testing::open(
        {.tokenizer_model = fixture(name),
         .tiktoken_pattern = std::string(name).ends_with("tiktoken") ? "cl100k_base" : ""});
    for (const testing::Case& expected : testing::cases_of("gpt2")) {
      const auto spans = tokenizer->encode_with_spans(expected.line);
      std::vector<std::int32_t> ids;
      std::size_t covered = 0;
      for (const TokenSpan& span : spans) {
        ids.push_back(span.id);
        // The post-processor of GPT-2 takes the spaces at the ends of tokens away.
        if (tokenizer->name() == "TikTokenizer") {
          EXPECT_LE(span.begin, covered) << expected.line;
        }
        EXPECT_LE(span.begin, span.end) << expected.line;
        EXPECT_GE(span.end, covered) << expected.line;
        covered = span.end;
      }
      EXPECT_EQ(ids, tokenizer->encode(expected.line));
    }
  }
}

TEST(TokenSpans, WidenToCharacters) {
  std::vector<TokenSpan> spans = {{0, 0, 2}, {1, 2, 4}, {2, 4, 5}};
  widen_to_characters("a\xE2\x82\xAC!", spans);
  EXPECT_EQ(spans[0].end, 4u);
  EXPECT_EQ(spans[1].begin, 1u);
  EXPECT_EQ(spans[2].begin, 4u);
  EXPECT_EQ(character_starts("a\xE2\x82\xAC!"), (std::vector<std::size_t>{0, 1, 4, 5}));
}

TEST(TokenSpans, AddedTokensHaveTheSpacesThatTheyTake) {
  const auto tokenizer = testing::open({.tokenizer_model = fixture("gpt2.json")});
  EXPECT_EQ(parts(*tokenizer, "a<|endoftext|>\xC3\xA9"), "a|<|endoftext|>|\xC3\xA9|\xC3\xA9|");
}

TEST(TokenSpans, ComposedCharactersComeFromTheirFirstPart) {  // as the package has it
  const auto qwen = testing::open({.tokenizer_model = fixture("qwen2.json")});
  EXPECT_EQ(parts(*qwen, "e\xCC\x81"), "e|");
}

TEST(TokenSpans, EqualThePackages) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::istringstream lines(read_file(fixture("spans.jsonl")));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = parse_json(line, "spans.jsonl");
    auto& tokenizer = tokenizers[json.at("tokenizer")];
    if (!tokenizer) tokenizer = testing::open({.tokenizer_model = fixture(json.at("tokenizer"))});
    const std::string text = testing::from_hex(json.at("hex"));
    Json got = Json::array();
    for (const TokenSpan& span : tokenizer->encode_with_spans(text))
      got.push_back({span.id, span.begin, span.end});
    EXPECT_EQ(got, json.at("spans")) << json.at("tokenizer") << ": " << text;
  }
  EXPECT_GT(count, 200);
}

TEST(TokenSpans, UnknownPlacesAreRefused) {
  EXPECT_THAT(message_of([] {
                testing::open({.tokenizer_type = "NullTokenizer", .vocab_size = 9})
                    ->encode_with_spans("1 2");
              }),
              HasSubstr("not known for this kind"));
}

}  // namespace
}  // namespace megatron
