#include "megatron/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

TEST(Json, ReadsTypedMembers) {
  const Json object = parse_json(R"({"i": -3, "d": 1.5, "b": true, "s": "x", "whole": 2})", "f");
  EXPECT_EQ(json_int(object, "i", "f"), -3);
  EXPECT_EQ(json_double(object, "d", "f"), 1.5);
  EXPECT_EQ(json_double(object, "whole", "f"), 2.0);
  EXPECT_TRUE(json_bool(object, "b", "f"));
  EXPECT_EQ(json_string(object, "s", "f"), "x");
}

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

TEST(Json, NamesFieldOfWrongTypes) {
  const Json object =
      parse_json(R"({"f": 1.5, "big": 18446744073709551615, "s": "x", "b": 1, "n": null})", "f");
  EXPECT_THAT(message_of([&] { json_int(object, "f", "file"); }),
              HasSubstr("file: field 'f' must be an integer, got 1.5"));
  EXPECT_THAT(message_of([&] { json_int(object, "big", "file"); }),
              HasSubstr("'big' must be a 64-bit integer"));
  EXPECT_THAT(message_of([&] { json_double(object, "s", "file"); }),
              HasSubstr("'s' must be a number"));
  EXPECT_THAT(message_of([&] { json_bool(object, "b", "file"); }),
              HasSubstr("'b' must be true or false"));
  EXPECT_THAT(message_of([&] { json_string(object, "n", "file"); }),
              HasSubstr("'n' must be a string"));
  EXPECT_THAT(message_of([&] { json_int(object, "none", "file"); }),
              HasSubstr("file: field 'none' is missing"));
  EXPECT_THAT(message_of([&] { json_int(parse_json("[]", "f"), "x", "file"); }),
              HasSubstr("expected a JSON object"));
}

}  // namespace
}  // namespace megatron
