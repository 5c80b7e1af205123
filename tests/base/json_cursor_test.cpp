
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JsonCursor, ReadsTypedMembers) {
  const Json parsed = parse_json(R"({"i": -3, "d": 1.5, "b": true, "s": "x", "whole": 2})", "f");
  const JsonCursor object(parsed, "f");
  EXPECT_EQ(object["i"].integer(), -3);
  EXPECT_EQ(object["d"].number(), 1.5);
  EXPECT_EQ(object["whole"].number(), 2.0);
  EXPECT_TRUE(object["b"].boolean());
  EXPECT_EQ(object["s"].text(), "x");
  EXPECT_EQ(object.find("s")->text(), "x");
  EXPECT_FALSE(object.find("none"));
  EXPECT_FALSE(object["s"].find("none"));
}

TEST(JsonCursor, NamesFieldOfWrongTypes) {
  const Json parsed =
      parse_json(R"({"f": 1.5, "big": 18446744073709551615, "s": "x", "b": 1, "n": null})", "f");
  const JsonCursor object(parsed, "file");
  EXPECT_EQ(message_of([&] { object["f"].integer(); }),
            "file: field 'f' must be an integer, got 1.5");
  EXPECT_THAT(message_of([&] { object["big"].integer(); }),
              HasSubstr("'big' must be a 64-bit integer"));
  EXPECT_THAT(message_of([&] { object["s"].number(); }), HasSubstr("'s' must be a number"));
  EXPECT_THAT(message_of([&] { object["b"].boolean(); }), HasSubstr("'b' must be true or false"));
  EXPECT_THAT(message_of([&] { object["n"].text(); }), HasSubstr("'n' must be a string"));
  EXPECT_THAT(message_of([&] { object["s"].object(); }), HasSubstr("'s' must be an object"));
  EXPECT_THAT(message_of([&] { object["s"].elements(); }), HasSubstr("'s' must be an array"));
  EXPECT_THAT(message_of([&] { object["none"]; }), StartsWith("file: field 'none' is missing"));
  EXPECT_THAT(message_of([&] { object["s"]["x"]; }),
              StartsWith("file: s: expected a JSON object with field 'x'"));
}

TEST(JsonCursor, NamesTheWholePlaceOfAValue) {
  const Json parsed = parse_json(R"({"a": {"list": [{"x": {"y": 1}}, 2]}, "e": []})", "f");
  const JsonCursor root(parsed, "dir/f.json");
  EXPECT_EQ(root.name(), "dir/f.json");
  EXPECT_EQ(root["a"].name(), "dir/f.json: field 'a'");
  EXPECT_EQ(root["a"].place(), "dir/f.json: a");
  const std::vector<JsonCursor> list = root["a"]["list"].elements();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].name(), "dir/f.json: a.list[1]");
  EXPECT_EQ(list[0]["x"]["y"].name(), "dir/f.json: a.list[0].x: field 'y'");
  EXPECT_EQ(list[0]["x"]["y"].integer(), 1);
  EXPECT_TRUE(root["e"].elements().empty());
  EXPECT_EQ(message_of([&] { list[1].text(); }), "dir/f.json: a.list[1] must be a string, got 2");
}

TEST(JsonCursor, TellsWhatIsGivenAndWhatIsUnknown) {
  const Json parsed = parse_json(R"({"a": 1, "n": null})", "f");
  const JsonCursor root(parsed, "f");
  EXPECT_EQ(root.find_given("a")->integer(), 1);
  EXPECT_FALSE(root.find_given("n"));
  EXPECT_FALSE(root.find_given("none"));
  root.allow_only({"a"});
  EXPECT_THAT(message_of([&] { root.allow_only({"n"}); }),
              StartsWith("f: field 'a': is not known here"));
  EXPECT_THAT(message_of([&] { root["a"].allow_only({}); }), HasSubstr("must be an object"));
}

}  // namespace
}  // namespace megatron
