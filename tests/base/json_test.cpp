#include "megatron/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

TEST(Json, NamesFileAndPlaceOfSyntaxErrors) {
  for (const char* text : {"", "{", "{\"a\":1,}", "[1 2]", "\"\xff\"", "nul", "{\"a\":1}x"}) {
    EXPECT_THAT(message_of([&] { parse_json(text, "config.json"); }),
                HasSubstr("config.json: not valid JSON at column "))
        << text;
  }
  EXPECT_THAT(message_of([] { parse_json("{\n\"a\": tru\n}", "f"); }),
              HasSubstr("line 2, column 9"));
}

// Python reads these; they have no UTF-8.
TEST(Json, NamesHalvesOfSurrogatePairs) {
  for (const char* text : {R"(["a\udcb2b"])", R"(["\ud83d"])", R"(["\ud83d\u0041"])"}) {
    const std::string message = message_of([&] { parse_json(text, "f"); });
    EXPECT_THAT(message, HasSubstr("f: half of a surrogate pair, which is no character, at column"))
        << text;
    EXPECT_THAT(message, ::testing::Not(HasSubstr("whole"))) << text;
  }
  EXPECT_EQ(parse_json(R"("\ud83d\ude00")", "f").get<std::string>(), "\U0001F600");
}

TEST(Json, NamesNoLineOfOneLine) {
  EXPECT_THAT(message_of([] { parse_json("{\"a\": tru}\n", "in.jsonl:7"); }),
              HasSubstr("in.jsonl:7: not valid JSON at column 10"));
}

}  // namespace
}  // namespace megatron
