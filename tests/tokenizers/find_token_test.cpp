// Tokens by their text. The ids are those of the vocabulary files and, for SentencePiece, of
// sp.piece_to_id().
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::fixture;
using testing::open;

TEST(FindToken, FindsTokensOfTheModelAndAddedOnes) {
  const auto tokenizer =
      open({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = fixture("llama3.json")});
  const Json json = read_json(fixture("llama3.json"));
  for (const auto& [token, id] : json["model"]["vocab"].items())
    EXPECT_EQ(tokenizer->find(token), id.get<std::int32_t>()) << token;
  for (const Json& added : json["added_tokens"])
    EXPECT_EQ(tokenizer->find(added["content"].get<std::string>()),
              added["id"].get<std::int32_t>());
  EXPECT_EQ(tokenizer->find("<no such token>"), -1);
}

TEST(FindToken, FindsPiecesOfSentencePiece) {
  const auto tokenizer = open({.tokenizer_type = "SentencePieceTokenizer",
                               .tokenizer_model = fixture("sp_bpe_bytes.model")});
  EXPECT_EQ(tokenizer->find("<unk>"), 0);
  EXPECT_EQ(tokenizer->find("<s>"), 1);
  EXPECT_EQ(tokenizer->find("</s>"), 2);
  EXPECT_EQ(tokenizer->find("<0x41>"), 69);
  EXPECT_EQ(tokenizer->find("no such piece"), -1);
}

TEST(FindToken, FindsTokensOfTheOtherKinds) {
  const auto gpt2 = open({.tokenizer_type = "GPT2BPETokenizer",
                          .vocab_file = fixture("gpt2/vocab.json"),
                          .merge_file = fixture("gpt2/merges.txt")});
  EXPECT_EQ(gpt2->find("<|endoftext|>"), gpt2->eod());
  EXPECT_EQ(gpt2->find("<end>"), -1);
  const auto tiktoken = open({.tokenizer_type = "TikTokenizer",
                              .tokenizer_model = fixture("small.tiktoken"),
                              .tiktoken_pattern = "cl100k_base"});
  EXPECT_EQ(tiktoken->find(" \xC2\x85 \xC2\xA0"), 682);  // IMKFIMKg in base64
  EXPECT_EQ(tiktoken->find("IMK"), -1);
  const auto null = open({.tokenizer_type = "NullTokenizer", .vocab_size = 10});
  EXPECT_EQ(null->find("3"), -1);
}

}  // namespace
}  // namespace megatron
