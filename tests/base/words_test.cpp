// Lists, numbers and words of texts.
#include "megatron/base/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

struct Named {
  std::string_view name;
};

TEST(Words, AreJoined) {
  EXPECT_EQ(joined_text(std::vector<int>{1, -2, 3}), "1, -2, 3");
  EXPECT_EQ(joined_text(std::vector<std::string>{"a"}, "-"), "a");
  EXPECT_EQ(joined_text(std::vector<std::string>{}), "");
  EXPECT_EQ(joined_text(std::vector<std::string>{"", "a"}), ", a");
  EXPECT_EQ(joined_text(std::vector<Named>{{"a"}, {"b"}}, " | ", &Named::name), "a | b");
}

TEST(Words, AreEscaped) {
  EXPECT_EQ(escaped_text("a<b\"", {{'<', "&lt;"}, {'"', "\\\""}}), "a&lt;b\\\"");
}

TEST(Words, AreTrimmedWhereTheyAreSplit) {
  EXPECT_EQ(trim(" \t\na b\r\f\v"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_THAT(split_at("a, b ,,c", ','), testing::ElementsAre("a", "b", "", "c"));
}

TEST(Words, AreLowered) { EXPECT_EQ(lower_case("A-zZ_1\xC3\x84"), "a-zz_1\xC3\x84"); }

TEST(Words, AreNumbersAsAWhole) {
  EXPECT_EQ(exact_number<std::int64_t>("-12"), -12);
  EXPECT_EQ(exact_number<double>("2.5e3"), 2500.0);
  for (const char* wrong : {"", "1 ", " 1", "1x", "9223372036854775808"})
    EXPECT_EQ(exact_number<std::int64_t>(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace megatron
