#include "megatron/tokenizers/tokenizer_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

// What MegatronTokenizer.write_metadata() writes.
constexpr const char* kHuggingFace =
    R"({"library": "huggingface", "class_name": null, "class_path": null, "model_type": "gpt",
        "chat_template": "{{ messages[0].content }}!"})";

TEST(TokenizerMetadata, NamesTheTypesOfItsLibrary) {
  const TemporaryFolder folder;
  const auto metadata = read_tokenizer_metadata(folder.write("m.json", kHuggingFace));
  EXPECT_EQ(metadata.default_type(), "HuggingFaceTokenizer");
  EXPECT_TRUE(metadata.has_chat_template);
  EXPECT_FALSE(metadata.allows("TikTokenizer"));
  const auto sentencepiece =
      read_tokenizer_metadata(folder.write("s.json", R"({"library": "sentencepiece"})"));
  EXPECT_TRUE(sentencepiece.allows("Llama2Tokenizer"));
  EXPECT_EQ(sentencepiece.default_type(), "SentencePieceTokenizer");
  EXPECT_FALSE(sentencepiece.has_chat_template);
  // The files say which of Megatron's own kinds it is.
  const auto megatron =
      read_tokenizer_metadata(folder.write("o.json", R"({"library": "megatron"})"));
  EXPECT_TRUE(megatron.allows("GPT2BPETokenizer"));
  EXPECT_EQ(megatron.default_type(), "");
}

TEST(TokenizerMetadata, MistakesNameTheFileAndTheField) {
  const TemporaryFolder folder;
  const auto error = [&](const char* json) {
    const std::string path = folder.write("m.json", json);
    return message_of([&] { read_tokenizer_metadata(path); });
  };
  EXPECT_THAT(error(R"({"library": "bytes"})"), HasSubstr("m.json: library 'bytes' is not known"));
  EXPECT_THAT(error("{}"), HasSubstr("library"));
  EXPECT_THAT(error("[]"), HasSubstr("m.json"));
  EXPECT_THAT(error(R"({"library": 3})"), HasSubstr("library"));
  EXPECT_THAT(error(R"({"library": "sft", "chat_template": 3})"), HasSubstr("must be a text"));
  EXPECT_THAT(error(R"({"library": "sft", "class_name": "Own"})"),
              HasSubstr("class_name names a class in Python"));
}

TEST(TokenizerMetadata, ChoosesTheTokenizer) {
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_metadata = folder.write("m.json", R"({"library": "byte-level"})");
  EXPECT_TRUE(has_tokenizer(config));
  EXPECT_EQ(make_tokenizer(config)->name(), "ByteTokenizer");
  EXPECT_EQ(with_resolved_type(config).tokenizer_type, "ByteTokenizer");
  config.tokenizer_type = "NullTokenizer";
  EXPECT_THAT(message_of([&] { make_tokenizer(config); }),
              HasSubstr("is not that of --tokenizer-type NullTokenizer"));
}

TEST(TokenizerMetadata, ItsChatTemplateGivesWayToThatOfTheFlag) {
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_metadata = folder.write("m.json", kHuggingFace);
  EXPECT_EQ(find_chat_template(chat_files(config), false).text, "{{ messages[0].content }}!");
  config.tokenizer_metadata = folder.write("named_otherwise", kHuggingFace);
  EXPECT_EQ(find_chat_template(chat_files(config), false).text, "{{ messages[0].content }}!");
  config.chat_template = folder.write("own.jinja", "own");
  EXPECT_EQ(find_chat_template(chat_files(config), false).text, "own");
  config.chat_template = folder.write("none.json", R"({"other": 1})");
  EXPECT_THAT(message_of([&] { find_chat_template(chat_files(config), false); }),
              HasSubstr("none.json has no template called default"));
}

}  // namespace
}  // namespace megatron
