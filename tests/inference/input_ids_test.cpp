#include "megatron/inference/input_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "megatron/base/files.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PromptFile : public testing::Test {
 protected:
  /// Writes a file and returns its prompts.
  std::vector<std::string> prompts(const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    return read_prompts(folder_ / name, notes_);
  }

  const TemporaryFolder folder_;
  std::ostringstream notes_;
};

TEST_F(PromptFile, HasAPromptOnEachLine) {
  EXPECT_THAT(prompts("a.txt", "9\n\n3 1 4\r\nlast"), ElementsAre("9", "3 1 4", "last"));
  EXPECT_THAT(prompts("a.jsonl", "{\"text\": \"9\"}\n \t\r\n{\"text\": \"3 1 4\"}\n"),
              ElementsAre("9", "3 1 4"));
  EXPECT_EQ(notes_.str(), "");
  EXPECT_THAT(prompts("b.txt", "a\xff\n"), ElementsAre("a\uFFFD"));
  EXPECT_THAT(notes_.str(), HasSubstr("b.txt contains invalid UTF-8, which is read as U+FFFD"));
}

TEST_F(PromptFile, MistakesNameFileAndLine) {
  const auto message = [&](const std::string& name, const std::string& content) {
    return message_of([&] { prompts(name, content); });
  };
  EXPECT_THAT(message("empty.txt", ""), HasSubstr("empty.txt: contains no prompt"));
  EXPECT_THAT(message("blank.txt", "\n\n"), HasSubstr("contains no prompt"));
  EXPECT_THAT(message("wrong.jsonl", "{\"text\": \"1\"}\n{\"prompt\": \"1\"}\n"),
              HasSubstr("wrong.jsonl, line 2"));
  EXPECT_THAT(message("half.jsonl", "{\"text\": \"a\\udcb2b\"}\n"),
              HasSubstr("half.jsonl, line 1: half of a surrogate pair"));
  EXPECT_THAT(message_of([&] { read_prompts(folder_ / "nowhere.txt", notes_); }),
              HasSubstr("cannot open " + (folder_ / "nowhere.txt").string()));
}

TEST(ContextLength, IsThatOfTraining) {
  TransformerConfig model;
  model.max_position_embeddings = 0;
  EXPECT_EQ(context_length(model), std::numeric_limits<std::int64_t>::max());
  model.max_position_embeddings = 1024;
  model.rope_scaling_factor = 4;
  model.rope_original_max_position_embeddings = 512;
  const auto length = [&](RopeScaling scaling) {
    model.rope_scaling_type = scaling;
    return context_length(model);
  };
  EXPECT_EQ(length(RopeScaling::none), 1024);
  EXPECT_EQ(length(RopeScaling::llama3), 1024) << "the length is that after scaling";
  EXPECT_EQ(length(RopeScaling::linear), 4 * 1024);
  EXPECT_EQ(length(RopeScaling::yarn), 4 * 512);
}

TEST(ReadScoredLine, TakesIntegers) {
  const ScoredLine line = read_scored_line(R"({"ids": [1, -2, 3], "more": 1})", "line 1");
  EXPECT_THAT(line.ids, ElementsAre(1, -2, 3));
  EXPECT_TRUE(line.encoder_ids.empty());
  EXPECT_TRUE(read_scored_line(R"({"ids": []})", "line 1").ids.empty());
  EXPECT_THAT(read_scored_line(R"({"encoder_ids": [4, 5], "ids": [1]})", "line 1").encoder_ids,
              ElementsAre(4, 5));
}

TEST(ReadScoredLine, MistakesNameTheLine) {
  for (const auto& [line, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({"ids":[1,2)", "line 7"},
           {R"({"tokens":[1,2]})", "'ids' is missing"},
           {R"({"ids":1})", "line 7: field 'ids' must be a list of token ids: 1"},
           {R"({"ids":[1,2.5]})", "line 7: ids[1] must be an integer: 2.5"},
           {R"({"ids":[1],"encoder_ids":[]})", "line 7: field 'encoder_ids': an empty list"},
           {R"({"ids":[1],"encoder_ids":["1"]})",
            "line 7: encoder_ids[0] must be an integer: \"1\""}}) {
    const std::string message = message_of([&] { read_scored_line(line, "line 7"); });
    EXPECT_THAT(message, HasSubstr(text));
    EXPECT_THAT(message, HasSubstr("line 7"));
  }
}

}  // namespace
}  // namespace megatron
