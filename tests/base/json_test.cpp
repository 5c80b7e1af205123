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

TEST(Json, NamesTheMemberOfANumberBeyondDouble) {
  for (const auto& [text, name] : std::vector<std::pair<const char*, const char*>>{
           {R"({"a": {"b": 1e400}, "c": 2})", "f: field 'a.b': the number is larger than a double"},
           {R"({"a": {"b": 1}, "c": [{"d": 1}, -1e999]})", "f: field 'c': the number"},
           {R"({"a": [[], {"b": {"c": 1}, "d": 1e400}]})", "f: field 'a.d': the number"},
           {R"([1, 1e400])", "f: the number"}})
    EXPECT_THAT(message_of([&, text = text] { parse_json(text, "f"); }), HasSubstr(name)) << text;
  EXPECT_EQ(parse_json("1e-400", "f").get<double>(), 0);
}

TEST(Json, ReadsWordsForNumbersThatPythonWrites) {
  const Json json = parse_python_json(
      R"({"limit": [0.0, Infinity], "least": -Infinity, "NaN": NaN, "text": "\"Infinity"})", "f");
  const Json infinite = {{"__float__", "Infinity"}};
  EXPECT_EQ(json.at("limit"), Json::array({0.0, infinite}));
  EXPECT_EQ(json.at("least").at("__float__"), "-Infinity");
  EXPECT_EQ(json.at("NaN").at("__float__"), "NaN");
  EXPECT_EQ(json.at("text"), "\"Infinity");
  EXPECT_THAT(message_of([] { parse_python_json("[Infinite]", "f"); }), HasSubstr("f: not valid"));
}

TEST(Json, NamesNoLineOfOneLine) {
  EXPECT_THAT(message_of([] { parse_json("{\"a\": tru}\n", "in.jsonl:7"); }),
              HasSubstr("in.jsonl:7: not valid JSON at column 10"));
}

}  // namespace
}  // namespace megatron
