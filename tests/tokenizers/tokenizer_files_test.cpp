#include "megatron/tokenizers/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/files.h"
#include "megatron/config/tokenizer_config.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using testing::fixture;
using ::testing::IsEmpty;
using ::testing::Key;

TEST(TokenizerFiles, HaveTheNamesOfAHuggingFaceFolder) {
  TokenizerConfig config;
  EXPECT_THAT(tokenizer_files(config), IsEmpty());
  config.vocab_file = fixture("gpt2/vocab.json");
  config.merge_file = fixture("gpt2/merges.txt");
  const auto gpt2 = tokenizer_files(config);
  EXPECT_THAT(gpt2, ElementsAre(Key("merges.txt"), Key("vocab.json")));
  EXPECT_EQ(gpt2.at("vocab.json"), read_file(fixture("gpt2/vocab.json")));

  const TemporaryFolder folder;
  TokenizerConfig llama;
  llama.tokenizer_model = folder.write("llama3.json", read_file(fixture("llama3.json")));
  folder.write("special_tokens_map.json", "{}");
  folder.write("notes.txt", "no part of it");
  EXPECT_THAT(tokenizer_files(llama),
              ElementsAre(Key("special_tokens_map.json"), Key("tokenizer.json")));
  llama.tokenizer_type = "SFTTokenizer";
  EXPECT_THAT(tokenizer_files(llama),
              ElementsAre(Key("special_tokens_map.json"), Key("tokenizer.json")));

  TokenizerConfig bare;
  bare.tokenizer_type = "NullTokenizer";
  bare.vocab_size = 9;
  EXPECT_THAT(tokenizer_files(bare), IsEmpty());
}

TEST(TokenizerFiles, ByteTokenizerAsTokenizerJson) {
  const TemporaryFolder folder;
  const auto written =
      testing::open({.tokenizer_model = folder.write("tokenizer.json", byte_tokenizer_json())});
  const auto bytes = testing::open({.tokenizer_type = "ByteTokenizer"});
  EXPECT_EQ(written->vocab_size(), bytes->vocab_size());
  EXPECT_EQ(written->eod(), bytes->eod());
  for (const char* text :
       {"", "Hello, world!  1234\n\t", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \x01\x7f"}) {
    const auto ids = bytes->encode(text);
    EXPECT_EQ(written->encode(text), ids) << text;
    EXPECT_EQ(written->decode(ids), text);
  }
}

}  // namespace
}  // namespace megatron
