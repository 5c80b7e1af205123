// Files of conversations with random damage: every line is read, or a UserError names it.
#include <gtest/gtest.h>

#include <random>

#include "datasets/extended_tokenizer.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/datasets/conversations.h"
#include "megatron/datasets/prompt_format.h"

namespace megatron {
namespace {

constexpr const char* kLine =
    R"({"messages":[{"role":"system","content":"Be br\u00ef\u00e9f. \ud83d\ude00"},)"
    R"({"role":"user","content":"Hi \"you\"\n"},{"role":"assistant","content":"Hello"}],"id":[1.5,)"
    R"(null,{"a":true}]})";

class ConversationFuzz : public ::testing::Test {
 protected:
  /// Reads lines behind a blank one. Returns how many were refused.
  int refused(const std::string& lines, const PromptFormat& format) {
    const fs::path path = folder_.write("fuzz.jsonl", "\n" + lines + "\n");
    const ConversationFile file(path);
    int count = 0;
    for (std::int64_t i = 0; i < file.size(); ++i) {
      const std::string where = file.describe(i);
      EXPECT_TRUE(where.starts_with(path.string() + ":")) << where;
      try {
        for (const Conversation& conversation : split_conversations(file.messages(i)))
          format.tokenize(conversation, where);
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find(where), std::string::npos) << error.what() << "\n"
                                                                            << lines.substr(0, 400);
        ++count;
      }
    }
    return count;
  }
  bool reads(const std::string& line, const PromptFormat& format) {
    return refused(line, format) == 0;
  }

  PromptFormat format(const std::string& name) {
    folder_.write("chat_template.jinja",
                  "{% for m in messages %}{{ m.role + m['content'] | trim }}{% endfor %}");
    folder_.write("tokenizer_config.json", R"({"pad_token":"<unk>"})");
    const auto tokenizer = test::with_tokens(
        "gpt2", {"<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>", "<unk>"},
        folder_);
    return {name, tokenizer, {.folder = folder_.path()}};
  }

  TemporaryFolder folder_;
};

std::string damaged(std::mt19937& random) {
  static const std::vector<std::string> kInserts = {std::string(1, '\0'),
                                                    "\xff",
                                                    "\xed\xa0\x80",
                                                    "\n",
                                                    "\r",
                                                    "\\u0000",
                                                    "\\ud800",
                                                    "[",
                                                    "{",
                                                    "}",
                                                    "]",
                                                    "\"",
                                                    "\\",
                                                    ",",
                                                    "null",
                                                    "1e999",
                                                    "-",
                                                    "\"role\":",
                                                    "\"content\":7,",
                                                    "\"messages\":{},",
                                                    "\xef\xbb\xbf",
                                                    "NaN"};
  std::string line = kLine;
  for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
    const std::size_t at = random() % (line.size() + 1);
    switch (random() % 4) {
      case 0:
        line.insert(at, kInserts[random() % kInserts.size()]);
        break;
      case 1:
        line.erase(at, 1 + random() % 12);
        break;
      case 2:
        if (at < line.size()) line[at] = static_cast<char>(random());
        break;
      default:
        line.insert(at, line.substr(random() % line.size(), random() % 40));
    }
  }
  return line;
}

TEST_F(ConversationFuzz, RandomDamageIsReadOrNamed) {
  for (const char* name : {"nemotron-h-aligned", "default"}) {
    const PromptFormat prompt_format = format(name);
    ASSERT_TRUE(reads(kLine, prompt_format));
    std::mt19937 random(11);
    int count = 0;
    for (int file = 0; file < 40; ++file) {
      std::string lines;
      for (int i = 0; i < 100; ++i) lines += damaged(random) + "\n";
      count += refused(lines, prompt_format);
    }
    EXPECT_GT(count, 1000);
  }
}

TEST_F(ConversationFuzz, EveryTruncationIsNamed) {
  const PromptFormat prompt_format = format("nemotron-h-aligned");
  const std::string line = kLine;
  for (std::size_t size = 1; size < line.size(); ++size)
    EXPECT_FALSE(reads(line.substr(0, size), prompt_format)) << size;
}

TEST_F(ConversationFuzz, WrongTypesDeepNestingAndHugeLinesAreReadOrNamed) {
  const PromptFormat prompt_format = format("default");
  const std::string deep(100000, '[');
  for (const std::string& line :
       {std::string("7"), std::string("[]"), std::string("\"messages\""), std::string("null"),
        std::string(R"({"messages":null})"), std::string(R"({"messages":[null]})"),
        std::string(R"({"messages":[[]]})"), std::string(R"({"messages":{"role":"user"}})"),
        std::string(R"({"messages":[{"role":7,"content":"x"}]})"),
        std::string(R"({"messages":[{"role":"user","content":["x"]}]})"),
        std::string(R"({"Messages":[]})"), deep, "{\"messages\":" + deep,
        R"({"messages":[{"role":"user","content":"x"}],"more":)" + deep + "}",
        std::string(1000, '\0'), std::string("{\"messages\"\0:[]}", 15)})
    EXPECT_FALSE(reads(line, prompt_format)) << line.substr(0, 60);
  const std::string huge(std::size_t{8} << 20, 'x');
  EXPECT_TRUE(reads(R"({"messages":[{"role":"user","content":")" + huge + "\"}]}",
                    format("nemotron-h-aligned")));
  EXPECT_FALSE(reads(R"({"messages":[{"role":")" + huge + R"(","content":"x"}]})",
                     format("nemotron-h-aligned")));
  EXPECT_FALSE(reads(huge, prompt_format));
}

}  // namespace
}  // namespace megatron
