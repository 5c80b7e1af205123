// Tests the choice of a tokenizer by name and by its files, and the two tokenizers without files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/recognize_file.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using testing::fixture;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::string error_of(const testing::TokenizerOptions& choice) {
  return message_of([&] { testing::open(choice); });
}

TEST(NullTokenizer, ReadsIds) {
  const auto tokenizer = testing::open({.tokenizer_type = "NullTokenizer", .vocab_size = 100});
  EXPECT_EQ(tokenizer->vocab_size(), 100);
  EXPECT_EQ(tokenizer->eod(), 99);
  EXPECT_EQ(tokenizer->pad(), -1);
  EXPECT_THAT(tokenizer->encode(" 1 22  99\t0\r"), ElementsAre(1, 22, 99, 0));
  EXPECT_EQ(tokenizer->decode(Ids{1, 22, 99}), "1 22 99");
  EXPECT_EQ(tokenizer->name(), "NullTokenizer");
  for (const char* text : {"x", "1 2x", "100", "-1", "1.5", "99999999999", "1,2", "\xFF"})
    EXPECT_THROW(tokenizer->encode(text), UserError) << text;
  EXPECT_THAT(error_of({.tokenizer_type = "NullTokenizer"}), HasSubstr("--vocab-size"));
  EXPECT_THAT(error_of({.tokenizer_type = "NullTokenizer", .vocab_size = 0}), HasSubstr("from 1"));
}

// As folders of Llama 2.
TEST(MakeTokenizer, OpensTheFileOfItsTypeInAFolderOfSeveral) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file(fixture("qwen2.json")));
  folder.write("tokenizer.model", read_file(fixture("sp_bpe_bytes.model")));
  folder.write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\na\n");
  folder.write("vocab.tiktoken", read_file(fixture("small.tiktoken")));
  for (const char* type : {"HuggingFaceTokenizer", "SentencePieceTokenizer", "Llama2Tokenizer",
                           "GPTSentencePieceTokenizer", "BertWordPieceCase"}) {
    TokenizerConfig config;
    config.tokenizer_type = type;
    config.tokenizer_model = folder.path();
    EXPECT_EQ(make_tokenizer(config)->name(), type);
    const std::string name = type == std::string("HuggingFaceTokenizer") ? "tokenizer.json"
                             : type == std::string("BertWordPieceCase")  ? "vocab.txt"
                                                                         : "tokenizer.model";
    EXPECT_EQ(tokenizer_files(config).at(name), read_file(folder.path() / name)) << type;
  }
  EXPECT_EQ(tokenizer_file_in(folder.path(), "TikTokenizer"), folder.path() / "vocab.tiktoken");
}

// Megatron adds them behind vocab.txt; the models of Hugging Face have no rows for them.
TEST(BertTokenizer, AddsBeginAndEndWhereTheyFit) {
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_type = "BertWordPieceCase";
  config.vocab_file = folder.write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\na\n");
  const auto ids = [&](std::optional<std::int64_t> vocab_size) {
    config.vocab_size = vocab_size;
    const auto tokenizer = make_tokenizer(config);
    EXPECT_EQ(tokenizer->find("[BOS]"), tokenizer->bos());
    EXPECT_EQ(tokenizer->find("[EOS]"), tokenizer->eod());
    return std::vector<std::int64_t>{tokenizer->vocab_size(), tokenizer->bos(), tokenizer->eod()};
  };
  EXPECT_THAT(ids({}), ElementsAre(8, 6, 7));
  EXPECT_THAT(ids(100), ElementsAre(8, 6, 7));
  EXPECT_THAT(ids(6), ElementsAre(6, -1, -1));
  EXPECT_THAT(ids(3), ElementsAre(6, -1, -1)) << "the file's own are there";
  folder.write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\n[EOS]\n[BOS]\n");
  EXPECT_THAT(ids(7), ElementsAre(7, 6, 5));
}

TEST(NullTokenizer, EndsDocumentsAndFillsSamplesWithTheIdsOfTheFlags) {
  TokenizerConfig config;
  config.tokenizer_type = "NullTokenizer";
  config.vocab_size = 9;
  config.null_tokenizer_eod_id = 0;
  config.null_tokenizer_pad_id = 8;
  EXPECT_EQ(make_tokenizer(config)->eod(), 0);
  EXPECT_EQ(make_tokenizer(config)->pad(), 8);
  config.null_tokenizer_pad_id = 9;
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }),
              HasSubstr("--null-tokenizer-pad-id must be less than --vocab-size: 9"));
  config.null_tokenizer_pad_id = -1;
  config.null_tokenizer_eod_id = 9;
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }), HasSubstr("--null-tokenizer-eod-id"));
  config.tokenizer_type = "ByteTokenizer";  // does not read the flags, like Megatron-LM's
  EXPECT_EQ(make_tokenizer(config)->eod(), 256);
  config = {.tokenizer_model = fixture("gpt2.json"), .null_tokenizer_eod_id = 9};
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }), HasSubstr("only with NullTokenizer"));
}

// Megatron-LM's NullMultimodalTokenizer counts the end of a document behind its vocabulary.
TEST(NullTokenizer, OfImagesAndTextEndsDocumentsBehindTheVocabulary) {
  const auto tokenizer =
      testing::open({.tokenizer_type = "NullMultimodalTokenizer", .vocab_size = 100});
  EXPECT_EQ(tokenizer->vocab_size(), 101);
  EXPECT_EQ(tokenizer->eod(), 100);
  EXPECT_THAT(error_of({.tokenizer_type = "NullMultimodalTokenizer"}), HasSubstr("--vocab-size"));
}

TEST(ByteTokenizer, IsExactForAnyBytes) {
  const auto tokenizer = testing::open({.tokenizer_type = "ByteTokenizer"});
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const Ids ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<std::size_t>(byte)], byte);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->decode(Ids{104, 256, 105}), "hi");
  EXPECT_EQ(tokenizer->eod(), 256);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
}

TEST(MakeTokenizer, RecognisesKindsFromFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(testing::open({.tokenizer_model = fixture("llama3.json")})->name(),
            "HuggingFaceTokenizer");
  EXPECT_EQ(testing::open({.tokenizer_model = fixture("gpt2")})->name(), "GPT2BPETokenizer");
  EXPECT_EQ(testing::open({.tokenizer_model = fixture("gpt2/vocab.json")})->name(),
            "GPT2BPETokenizer");
  EXPECT_EQ(testing::open({.vocab_file = fixture("gpt2/vocab.json"),
                           .merge_file = fixture("gpt2/merges.txt")})
                ->name(),
            "GPT2BPETokenizer");
  folder.write("tokenizer.json", read_file(fixture("qwen2.json")));
  EXPECT_EQ(testing::open({.tokenizer_model = folder.path()})->name(), "HuggingFaceTokenizer");
}

TEST(MakeTokenizer, RefusesOtherKindsByName) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of({}), HasSubstr("--tokenizer-model"));
  EXPECT_THAT(error_of({.tokenizer_type = "WordTokenizer"}),
              HasSubstr("--tokenizer-type WordTokenizer is not supported"));
  EXPECT_THAT(error_of({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = "gpt2"}),
              HasSubstr("gpt2 does not exist"));
  EXPECT_THAT(error_of({.tokenizer_type = "HuggingFaceTokenizer"}),
              HasSubstr("needs --tokenizer-model"));
  EXPECT_THAT(error_of({.tokenizer_type = "GPT2BPETokenizer", .vocab_file = "v"}),
              HasSubstr("needs --vocab-file and --merge-file"));
  EXPECT_THAT(error_of({.tokenizer_model = folder.path()}), HasSubstr("holds no tokenizer.json"));
  const std::string sentencepiece = folder.write("tokenizer.model", "\x0A\x0E\x0A\x05<unk>");
  for (const testing::TokenizerOptions& choice :
       {testing::TokenizerOptions{.tokenizer_type = "HuggingFaceTokenizer",
       .tokenizer_model = sentencepiece},
        {.tokenizer_type = "GPT2BPETokenizer",
        .vocab_file = sentencepiece,
        .merge_file = sentencepiece},
        {.tokenizer_type = "TikTokenizer", .tokenizer_model = sentencepiece},
        {.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = folder.path()}}) {
    EXPECT_THAT(error_of(choice), HasSubstr("is a SentencePiece model"));
    EXPECT_THAT(error_of(choice), HasSubstr("give --tokenizer-type SentencePieceTokenizer"));
  }
  EXPECT_THAT(error_of({.tokenizer_type = "HuggingFaceTokenizer",
                        .tokenizer_model = fixture("small.tiktoken")}),
              HasSubstr("is a tiktoken vocabulary"));
  EXPECT_THAT(error_of({.tokenizer_model = folder.write("empty", "")}), HasSubstr("is empty"));
  EXPECT_THAT(error_of({.tokenizer_model = folder.write("noise", "MZ\x01\x02")}),
              HasSubstr("no known kind"));
  EXPECT_THAT(error_of({.tokenizer_model = folder.write("other.json", "{}")}),
              HasSubstr("field 'model' is missing"));
}

TEST(MakeTokenizer, RefusesFlagsThatAKindDoesNotRead) {
  TokenizerConfig config;
  config.tokenizer_model = fixture("sp_unigram_bytes.model");
  config.tokenizer_special_tokens = {"<x>"};
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }), HasSubstr("--tokenizer-special-tokens"));
  config.tokenizer_special_tokens.clear();
  config.tiktoken_pattern = "v2";
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }), HasSubstr("only with TikTokenizer"));
}

TEST(MakeTokenizer, LeavesOutTheTokensAtTheEndsOfTexts) {
  TokenizerConfig config;
  config.tokenizer_model = fixture("llama3.json");
  const Ids whole = make_tokenizer(config)->encode("text"),
            fragment = make_tokenizer(config)->encode_fragment("text");
  ASSERT_GT(whole.size(), fragment.size());
  config.tokenizer_hf_no_include_special_tokens = true;
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->encode("text"), fragment);
  config.tokenizer_model = fixture("sp_unigram_bytes.model");
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }),
              HasSubstr("--tokenizer-hf-no-include-special-tokens"));
}

}  // namespace
}  // namespace megatron
