// What a continued preprocess-data compares: every flag of the tokenizer and each of its files.
#include "megatron/datasets/encoder_identity.h"

#include <gtest/gtest.h>

#include "megatron/base/files.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// Returns a text that is a value of the field and not its default.
std::string other_value(const Field& field) {
  if (!field.choices.empty()) return field.choices.back();
  if (field.is_switch()) return "true";
  return field.kind == ValueKind::text ? "file" : "7777";
}

TEST(EncoderIdentity, DependsOnEveryFlag) {
  const std::string expected = encoder_identity({});
  for (const Field& field : tokenizer_table().set().fields) {
    TokenizerConfig config;
    if (field.name == "tokenizer_metadata") continue;  // its type is read
    assign(field, &config, std::vector{other_value(field)});
    EXPECT_NE(encoder_identity(config), expected) << field.name;
  }
}

TEST(EncoderIdentity, DependsOnTheFilesOfTheFolder) {
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_model = folder.path().string();
  const auto write = [&](const char* name, const char* text) {
    write_file(folder.path() / name, text);
    return encoder_identity(config);
  };
  const std::string expected = write("tokenizer.json", R"({"model":{"type":"BPE"}})");
  EXPECT_EQ(encoder_identity(config), expected);
  EXPECT_NE(write("tokenizer.json", R"({"model": {"type":"BPE"}})"), expected);
  EXPECT_NE(write("chat_template.jinja", "x"), expected);
}

TEST(EncoderIdentity, DependsOnFilesThatFlagsName) {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const char* text) {
    write_file(folder.path() / name, text);
    return (folder.path() / name).string();
  };
  TokenizerConfig config;
  config.tokenizer_type = "GPT2BPETokenizer";
  config.tokenizer_model = write("vocab.json", "{}");
  config.chat_template = write("own", "a");
  config.tokenizer_metadata = write("metadata", R"({"library":"megatron"})");
  std::string before = encoder_identity(config);
  for (const auto& [name, text] : {std::pair("vocab.json", "{ }"),
                                   {"merges.txt", "a b"},
                                   {"own", "ab"},
                                   {"metadata", R"({"library": "megatron"})"}}) {
    write(name, text);
    const std::string after = encoder_identity(config);
    EXPECT_NE(after, before) << name;
    before = after;
  }
  write("output.bin", "x");
  EXPECT_EQ(encoder_identity(config), before);
}

}  // namespace
}  // namespace megatron
