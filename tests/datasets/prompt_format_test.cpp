// The expected values were made by Megatron-LM's MultimodalTokenizer
// (tests/parity/make_multimodal_fixtures.py). Those of SFTTokenizer are in sft_dataset_test.cpp.
#include "megatron/datasets/prompt_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "datasets/extended_tokenizer.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

Conversation conversation_of(const Json& messages) {
  Conversation conversation;
  for (const Json& message : messages)
    conversation.push_back({message["role"], message["content"]});
  return conversation;
}

Ids widened(const std::vector<std::int32_t>& ids) { return {ids.begin(), ids.end()}; }

struct Flags {
  std::string format = "qwen2p0", image_tag_type = {};
  bool force_system_message = false;
};

class MultimodalPrompts : public ::testing::Test {
 protected:
  /// Opens a fixture with the tokens of this test, and the chat template of the header's
  /// `templates`.
  std::shared_ptr<const Tokenizer> open(const std::string& name, const Flags& flags) {
    const Json& templates = header()["templates"];
    const std::string chat = templates[flags.format == "llama3" ? "llama3" : "other"];
    const Json config = {{"bos_token", "<s>"},
                         {"eos_token", "</s>"},
                         {"pad_token", "<pad>"},
                         {"unk_token", "<unk>"},
                         {"chat_template", chat}};
    folder_.write("tokenizer_config.json", config.dump());
    test::with_tokens(name, header()["special_tokens"], folder_);
    TokenizerConfig multimodal;
    multimodal.tokenizer_type = "MultimodalTokenizer";
    multimodal.tokenizer_model = (folder_.path() / (name + ".json")).string();
    multimodal.tokenizer_special_tokens = header()["added_tokens"];
    multimodal.tokenizer_prompt_format = flags.format;
    multimodal.image_tag_type = flags.image_tag_type;
    multimodal.force_system_message = flags.force_system_message;
    return make_tokenizer(multimodal);
  }

  const std::vector<Json>& lines() {
    if (lines_.empty()) {
      std::istringstream file(
          read_file(MEGATRON_SOURCE_DIR "/tests/datasets/fixtures/multimodal.jsonl"));
      for (std::string line; std::getline(file, line);)
        lines_.push_back(parse_json(line, "multimodal.jsonl"));
    }
    return lines_;
  }
  const Json& header() { return lines().front(); }

  std::string refusal(const Json& messages, const Flags& flags = {}) {
    const PromptFormat format("nemotron-h-aligned", open("gpt2", flags),
                              ChatFiles{.folder = folder_.path()});
    return message_of([&] { format.tokenize(conversation_of(messages), "here"); });
  }

  TemporaryFolder folder_;
  std::vector<Json> lines_;
};

TEST_F(MultimodalPrompts, GiveTheTokensOfMegatron) {
  std::map<bool, int> refusals;
  int texts = 0;
  for (const Json& line : lines()) {
    if (!line.contains("tokenizer")) continue;
    const auto tokenizer =
        open(line["tokenizer"], {.format = line["format"],
                                 .image_tag_type = line["image_tag_type"],
                                 .force_system_message = line["force_system_message"]});
    EXPECT_EQ(tokenizer->pad(), line["pad"]) << line;
    if (line.contains("text")) {
      EXPECT_EQ(widened(tokenizer->encode(line["text"].get<std::string>())), line["ids"].get<Ids>())
          << line;
      ++texts;
      continue;
    }
    const Conversation conversation = conversation_of(line["messages"]);
    const PromptFormat format("nemotron-h-aligned", tokenizer, ChatFiles{.folder = folder_.path()});
    const ConversationText text("nemotron-h-aligned", *tokenizer,
                                ChatFiles{.folder = folder_.path()});
    const Conversation turns = text.prepare(conversation);
    EXPECT_EQ(widened(tokenizer->encode_fragment(text.text(turns, "here", /*asks=*/true))),
              line["generation"].get<Ids>())
        << line;
    EXPECT_EQ(widened(tokenizer->encode_fragment(text.text(turns, "here"))),
              line["tokens"].get<Ids>())
        << line;
    ++refusals[line["refused"]];
    if (line["refused"].get<bool>()) {
      EXPECT_THROW(format.tokenize(conversation, "here"), UserError) << line;
      continue;
    }
    const PromptFormat::Tokens tokens = format.tokenize(conversation, "here");
    EXPECT_EQ(tokens.ids, line["tokens"].get<Ids>()) << line;
    EXPECT_EQ(tokens.targets, line["targets"].get<Ids>()) << line;
  }
  EXPECT_EQ(texts, 132);
  EXPECT_EQ(refusals[false] + refusals[true], 132);
  EXPECT_GT(refusals[true], 12);
}

TEST_F(MultimodalPrompts, ExistForEveryChoiceOfTheFlags) {
  for (const Field& field : tokenizer_table().set().fields) {
    for (const std::string& choice : field.choices) {
      if (field.name == "tokenizer_prompt_format") {
        const auto tokenizer = open("llama3", {.format = choice});
        EXPECT_NO_THROW(PromptFormat("identity", tokenizer, ChatFiles{.folder = folder_.path()}))
            << choice;
      } else if (field.name == "image_tag_type") {
        EXPECT_NO_THROW(open("llama3", {.image_tag_type = choice})) << choice;
      }
    }
  }
  EXPECT_THAT(message_of([&] { open("gpt2", {.format = "qwen3"}); }),
              HasSubstr("use one of mistral, llama3, llama3p1, llama3p2, nvlm-yi-34b, chatml, "));
  EXPECT_THAT(message_of([&] { open("gpt2", {.image_tag_type = "img"}); }),
              HasSubstr("use one of nvlm, internvl"));
}

TEST_F(MultimodalPrompts, RefuseWhatHasNoTargets) {
  const Json question = {{"role", "user"}, {"content", "x"}};
  const auto message = [](const char* role, const char* content) {
    return Json{{"role", role}, {"content", content}};
  };
  EXPECT_THAT(refusal(Json::array({question, message("tool", "4")})),
              HasSubstr("message 2 of a conversation has an unknown role"));
  EXPECT_THAT(refusal(Json::array({message("user", ""), message("assistant", "x")})),
              HasSubstr("message 1 of a conversation is empty"));
  EXPECT_THAT(refusal(Json::array({question, message("assistant", "an <image>")})),
              HasSubstr("message 2 of a conversation is an answer with an image"));
  EXPECT_THAT(refusal(Json::array({message("system", "x")}), {.format = "mistral"}),
              HasSubstr("has no messages besides the system's"));
  EXPECT_THAT(
      refusal(Json::array({question, message("assistant", "x")}), {.format = "nemotron6-moe"}),
      HasSubstr("is a format for generation"));
}

TEST_F(MultimodalPrompts, NameWhatTheTokenizerLacks) {
  const auto problem = [&](const Flags& flags, const Json& config) {
    open("gpt2", flags);
    folder_.write("tokenizer_config.json", config.dump());
    TokenizerConfig multimodal;
    multimodal.tokenizer_type = "MultimodalTokenizer";
    multimodal.tokenizer_model = (folder_.path() / "gpt2.json").string();
    multimodal.tokenizer_prompt_format = flags.format;
    return message_of([&] {
      PromptFormat("nemotron-h-aligned", make_tokenizer(multimodal),
                   ChatFiles{.folder = folder_.path()});
    });
  };
  const Json end = {{"eos_token", "</s>"}};
  EXPECT_THAT(problem({.format = ""}, end), HasSubstr("add --tokenizer-prompt-format"));
  EXPECT_THAT(
      problem({.format = "mistral"}, end),
      HasSubstr("--tokenizer-prompt-format mistral begins conversations with the bos_token"));
  EXPECT_THAT(problem({.format = "nvlm-yi-34b"}, end),
              HasSubstr("begins texts with the bos_token"));
  EXPECT_THAT(problem({.format = "qwen2p5"}, end), HasSubstr("no padding token"));
  EXPECT_THAT(problem({.format = "chatml"}, {{"pad_token", "<pad>"}}),
              HasSubstr("is the tokenizer's chat template"));
}

}  // namespace
}  // namespace megatron
