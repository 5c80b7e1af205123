#include "megatron/config/action_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/config/field_table.h"
#include "support/message_of.h"

namespace megatron {
namespace {

struct Options {
  std::string word;
  std::int64_t count = 1, workers = 2;
  bool deep = false;
};

const FieldTable<Options>& options_table() {
  return field_table<Options>([](auto& t) {
    t.field("word", &Options::word, "action").positional();
    t.group("Showing");
    t.field("count", &Options::count, "number").alias("number");
    t.field("deep", &Options::deep, "switch");
    t.group("Runs");
    t.field("workers", &Options::workers, "threads");
  });
}

const std::vector<FlagActions> kUses = {
    {"deep", {"show", "info", "merge"}}, {"Showing", {"show"}}, {"Runs", {}}};

void refuse(std::vector<std::string> words, std::span<const FlagActions> uses = kUses) {
  Options options;
  const ParseResult parsed = parse_command_line(options_table(), words, options, "data");
  refuse_unused_flags(options_table().set(), parsed, options.word, uses);
}

TEST(ActionFlags, AcceptsWhatTheActionUses) {
  EXPECT_NO_THROW(refuse({"show", "--count", "2", "--deep"}));
  EXPECT_NO_THROW(refuse({"info", "--deep"}));
  EXPECT_NO_THROW(refuse({"info"}));
}

TEST(ActionFlags, NamesTheActionsThatUseAFlag) {
  EXPECT_EQ(message_of([] {
              refuse({"info", "--number", "1"});
            }),
            "--number has no effect on info\n  fix: leave it out; it is for show");
  EXPECT_THAT(message_of([] {
                refuse({"edit", "--deep"});
              }),
              ::testing::HasSubstr("it is for show, info and merge"));
  EXPECT_THAT(message_of([] {
                refuse({"show", "--workers", "2"});
              }),
              ::testing::HasSubstr("it has an effect in runs only"));
  EXPECT_THAT(message_of([] {
                refuse({"info", "--workers", "2", "--count", "1"});
              }),
              ::testing::HasSubstr("2 problems"));
}

TEST(ActionFlags, KnowsEveryFlag) {
  EXPECT_THROW(refuse({"show"}, std::span(kUses).first(2)), InternalError);
}

}  // namespace
}  // namespace megatron
