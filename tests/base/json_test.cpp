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

TEST(Json, NamesNoLineOfOneLine) {
  EXPECT_THAT(message_of([] { parse_json("{\"a\": tru}\n", "in.jsonl:7"); }),
              HasSubstr("in.jsonl:7: not valid JSON at column 10"));
}

}  // namespace
}  // namespace megatron
