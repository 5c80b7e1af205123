// Tests the parser of Megatron's pipeline layouts: its results, the positions of mistakes, and
// random text.
#include "megatron/config/layout_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Formats the parsed stages as "E2|3|L".
std::string read(std::string_view text) {
  std::string all;
  for (const StageLayers& stage : parse_layout_string(text)) {
    all += (all.empty() ? "[" : "|") + std::string(stage.has_embedding ? "E" : "") +
           std::to_string(stage.num_layers) + (stage.has_output ? "L" : "");
  }
  return all.substr(1);
}

std::string mistake(std::string_view text) {
  return message_of([&] { parse_layout_string(text); });
}

TEST(LayoutString, Repetitions) {
  EXPECT_EQ(read("EttL"), "E2L");
  EXPECT_EQ(read("Et*3|(tt|)*5,L"), "E3|2|2|2|2|2|0L");
  EXPECT_EQ(read("E|(t*2|,t)*2|*2L"), "E0|2|3|1|0|0L");
  EXPECT_EQ(read("Et*0(t|)*0t*10L"), "E10L");
  EXPECT_EQ(read("|E|tL|"), "0|E0|1L|0");
  EXPECT_EQ(parse_layout_string("Et|t*2|tL")[2],
            (StageLayers{.first_layer = 3, .num_layers = 1, .has_output = true}));
  EXPECT_EQ(parse_layout_string("Et|tm*2|L")[1],
            (StageLayers{.first_layer = 1, .num_layers = 3, .num_mtp = 2}));
}

TEST(LayoutString, MistakesHaveAPlace) {
  const std::pair<const char*, const char*> table[] = {
      {"Ett|txL", ": unexpected character at position 6\n    Ett|txL\n         ^\n"},
      {"E(tt|)5L", ": no *n behind a group at position 7\n    E(tt|)5L\n          ^\n"},
      {"E(tt|", ": a group without ')' at position 2\n"},
      {"E()*2L", ": an empty group at position 2\n"},
      {"E((t)*2)*2L", ": a group inside a group at position 3\n"},
      {"Et*L", ": no number behind '*' at position 4\n"},
      {"Et*", ": no number behind '*' at the end\n    Et*\n       ^\n"},
      {"Et*2*3L", ": a repetition of a repetition at position 5\n"},
      {"Et*1,2L", ": unexpected character at position 6\n"},
      {"*3EL", ": unexpected character at position 1\n"},
      {"E|E|tL", ": a second E at position 3\n"},
      {"(Et)*2L", ": a second E at position 2\n"},
      {"tEL", ": a layer without an E in front at position 1\n"},
      {"EtLt", ": a layer behind L at position 4\n"},
      {"EtLL", ": a second L at position 4\n"},
      {"Lt", ": an L without an E in front at position 1\n"},
      {"", ": no E at the end\n"},
      {"||", ": no E at position 1\n"},
      {"Ett|t", ": no L at the end\n    Ett|t\n         ^\n"},
      {"EmtL", ": an m without a layer in front at position 2\n"},
      {"EtLm", ": an m behind L at position 4\n"},
      {"EtmtL", ": a layer behind m at position 4\n"},
      {"Etm|mL", ": an m in a second stage at position 5\n"},
      {"E(t*1000|)*1001L", ": more than 1000000 symbols at position 2\n"},
      {"Et*99999999999999999999999999L", ": more than 1000000 symbols at position 2\n"},
  };
  for (const auto& [text, expected] : table)
    EXPECT_THAT(mistake(text),
                HasSubstr(std::string("--pipeline-model-parallel-layout") + expected))
        << text;
}

TEST(LayoutString, ALongTextIsShownInPart) {
  const std::string long_text = "E" + std::string(100, 't') + "\x01\xff" + std::string(100, 't');
  EXPECT_THAT(mistake(long_text),
              HasSubstr("at position 102\n    ..." + std::string(40, 't') + "??" +
                        std::string(38, 't') + "...\n    " + std::string(43, ' ') + "^"));
}

TEST(LayoutString, NoTextCrashes) {
  std::mt19937 random(5);
  const std::string letters = "EttL|()*12,m \xff";
  int accepted = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string text = i % 2 == 0 ? "E(tt|)*2t*3|L" : "";
    for (std::size_t edits = random() % 6; edits > 0; --edits)
      text.insert(random() % (text.size() + 1), 1, letters[random() % letters.size()]);
    if (!text.empty() && random() % 4 == 0) text.erase(random() % text.size(), 1);
    try {
      const auto stages = parse_layout_string(text);
      ASSERT_FALSE(stages.empty());
      ++accepted;
    } catch (const UserError& error) {
      ASSERT_EQ(std::string_view(error.what()).find("--pipeline-model-parallel-layout: "), 0u)
          << text;
    }
  }
  EXPECT_GT(accepted, 2'000);
}

}  // namespace
}  // namespace megatron
