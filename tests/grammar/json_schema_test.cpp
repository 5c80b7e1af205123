// JSON schemas: what they accept, keyword by keyword, and what they refuse. The parity script
// grammar_parity.py compares texts with the package jsonschema.
#include "megatron/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/grammar_texts.h"
#include "megatron/base/json.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;
constexpr auto kSchema = OutputConstraint::Kind::json_schema;

struct Case {
  const char* schema;
  Texts valid, invalid;
};

const std::vector<Case> kCases{
    {R"(true)", {"null", "1", R"("a")", R"({"a": [1, {"b":null}]})", "[]"}, {"", "nul", "[1,]"}},
    {R"({"type": "string"})", {R"("")", R"("a\n\u00e9\ud83d\ude00é")"}, {R"("\ud83d")", "\"\n\""}},
    {R"({"type": ["integer", "null"]})", {"0", "-12", "null"}, {"1.0", "01", "\"1\""}},
    {R"({"type": "number"})", {"1.5", "-0.1e+3", "2"}, {".5", "1.", "+1"}},
    {R"({"minimum": -3, "exclusiveMaximum": 12, "type": "integer"})",
     {"-3", "0", "11"},
     {"-4", "12", "100"}},
    {R"({"type": "number", "minimum": 0.5, "maximum": 2})",
     {"0.5", "0.75", "1", "2", "2.0"},
     {"0.4", "0", "2.1", "20", "-1"}},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {R"("ab")", R"("é\n")", R"("😀\ud83d\ude00a")"},
     {R"("a")", R"("abcd")"}},
    {R"({"type": "string", "pattern": "^a\"?[0-9]+$"})",
     {R"("a1")", R"("a\"12")"},
     {R"("b1")", R"("a")"}},
    {R"({"pattern": "b", "maxLength": 2})", {R"("b")", R"("ab")"}, {R"("aab")", R"("a")", "1"}},
    {R"({"type": "string", "format": "date"})",
     {R"("2024-02-29")", R"("2023-12-31")"},
     {R"("2023-02-29")", R"("2023-04-31")", R"("0000-01-01")"}},
    {R"({"format": "uuid"})", {R"("12345678-9abc-def0-1234-56789abcdef0")"}, {R"("1234")"}},
    {R"({"format": "ipv4"})", {R"("10.0.255.1")"}, {R"("10.0.256.1")", R"("1.2.3")"}},
    {R"({"enum": [1, "a\"", null, [1, {"b": 2}]]})",
     {"1", R"("a\"")", "null", R"([1,{"b":2}])"},
     {"2", R"("b")"}},
    {R"({"type": "integer", "enum": [1, "a", 20], "maximum": 10})", {"1"}, {"20", R"("a")"}},
    {R"({"const": {"b": 1, "a": 2}})", {R"({"b":1,"a":2})"}, {R"({"a":2,"b":1})"}},
    {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
     {"[1]", "[1, 2]", "[\n  1,\n  2\n]"},
     {"[]", "[1,2,3]", R"(["a"])"}},
    {R"({"prefixItems": [{"type": "string"}, {"type": "null"}], "items": false})",
     {"[]", R"(["a"])", R"(["a",null])"},
     {R"(["a",null,1])", "[null]"}},
    {R"({"items": {"const": 1}, "minItems": 3})", {"[1,1,1]", "[1,1,1,1,1]"}, {"[1,1]"}},
    {R"({"properties": {"b": {"type": "integer"}, "a": {}}, "required": ["b"]})",
     {R"({"b":1})", R"({"b": 1, "a": [2]})"},
     {"{}", R"({"a":1,"b":1})", R"({"b":1,"c":2})"}},
    {R"({"properties": {"a": {}, "b": {}, "c": {}}})",
     {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"c":2})", R"({"b":1,"c":2})"},
     {R"({"c":1,"a":2})", R"({,"a":1})", R"({"a":1,})"}},
    {R"({"properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
     {R"({"ab":null,"abc":1,"":2})", R"({"a":1})"},
     {R"({"ab":1})", R"({"x":null})"}},
    {R"({"required": ["x"], "properties": {"y": {}}})", {R"({"x":[1]})"}, {R"({"y":1})"}},
    {R"({"patternProperties": {"^n_": {"type": "integer"}, "^s_": {"type": "string"}}})",
     {R"({"n_a":1,"s_":"x"})", "{}"},
     {R"({"n_a":"x"})", R"({"z":1})"}},
    {R"({"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}})",
     {R"({"abc":1})"},
     {R"({"d":1})"}},
    {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
     {"5", R"("a")"},
     {R"("ab")", "null"}},
    {R"({"type": "string", "anyOf": [{"minLength": 3}, {"const": "a"}]})",
     {R"("abc")", R"("a")"},
     {R"("b")", "1"}},
    {R"({"oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "integer"}},
                    "required": ["k", "x"]},
                   {"properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
     {R"({"k":"a","x":1})", R"({"k":"b"})"},
     {R"({"k":"a"})", R"({"k":"c"})"}},
    {R"({"allOf": [{"properties": {"a": {"minimum": 1}}, "required": ["a"]},
                   {"properties": {"a": {"type": "integer", "maximum": 3}, "b": {}}}]})",
     {R"({"a":1})", R"({"a":3,"b":null})"},
     {R"({"a":0})", R"({"a":4})", R"({"b":1})"}},
    {R"({"allOf": [{"prefixItems": [{"minimum": 3}]}], "items": {"minimum": 5}})",
     {"[5,6]", "[]"},
     {"[3,5]", "[5,3]"}},
    {R"({"allOf": [{"prefixItems": [{"type": "integer"}], "items": {"maximum": 2}},
                   {"prefixItems": [{"minimum": 4}, {"minimum": 1}], "items": false}]})",
     {"[4,1]", "[7]"},
     {"[3,1]", "[4,3]", "[4,0]", "[4,1,1]", "[4.5]"}},
    {R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["v", "next"]}}})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1})", R"({"v":1,"next":{}})"}},
    {R"({"properties": {"a": {"$ref": "#"}}})", {"{}", R"({"a":{"a":{}}})"}, {R"({"a":1})"}},
};

TEST(JsonSchema, AcceptsWhatIsValid) {
  for (const auto& [schema, valid, invalid] : kCases) {
    SCOPED_TRACE(schema);
    const auto grammar = grammar_of(kSchema, {schema});
    for (const std::string& text : valid) EXPECT_TRUE(grammar->accepts(text)) << text;
    for (const std::string& text : invalid) EXPECT_FALSE(grammar->accepts(text)) << text;
  }
}

TEST(JsonSchema, RandomTextsAreJson) {
  std::mt19937 random(5);
  const auto tokens = byte_tokens({"{\"", "\":", "\",", "},", "]}", "true", "12", ", \"", "\": "});
  int num_texts = 0;
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.schema);
    const auto grammar = grammar_of(kSchema, {one.schema}, tokens);
    for (int i = 0; i < 20; ++i) {
      const std::optional<std::string> text = random_text(*grammar, random);
      if (!text) continue;
      ++num_texts;
      EXPECT_TRUE(Json::accept(*text)) << *text;
      EXPECT_TRUE(grammar->accepts(*text)) << *text;
    }
  }
  EXPECT_GT(num_texts, 300);
}

TEST(JsonSchema, RefusesByKeywordAndPlace) {
  const auto refusal = [](const char* schema) {
    return message_of([&] { grammar_of(kSchema, {schema}); });
  };
  EXPECT_THAT(refusal(R"({"properties": {"a": {"not": {}}}})"),
              HasSubstr("#/properties/a: keyword 'not'"));
  for (const char* keyword : {"if", "multipleOf", "contains", "minProperties", "dependentSchemas"})
    EXPECT_THAT(refusal((R"({")" + std::string(keyword) + R"(": 1})").c_str()),
                HasSubstr("keyword '" + std::string(keyword) + "'"));
  EXPECT_THAT(refusal(R"({"uniqueItems": true})"), HasSubstr("'uniqueItems'"));
  EXPECT_THAT(refusal(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})"),
              HasSubstr("keyword 'oneOf': a value may fit several branches"));
  EXPECT_THAT(refusal(R"({"format": "phone"})"), HasSubstr("'phone' is not supported"));
  EXPECT_THAT(refusal(R"({"type": "text"})"), HasSubstr("keyword 'type'"));
  EXPECT_THAT(refusal(R"({"pattern": ["a", 1]})"), HasSubstr("keyword 'pattern'"));
  EXPECT_THAT(refusal(R"({"$ref": "#/$defs/x"})"), HasSubstr("there is no '#/$defs/x'"));
  EXPECT_THAT(refusal(R"({"$ref": "other.json"})"), HasSubstr("not in this schema"));
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("1"), HasSubstr("neither an object nor true or false"));
  EXPECT_THAT(refusal("false"), HasSubstr("no text fits"));
  EXPECT_THAT(refusal(R"({"$ref": "#"})"), HasSubstr("no text fits"));
  EXPECT_THAT(refusal(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"),
              HasSubstr("refers to itself before it has a text"));
  EXPECT_THAT(refusal(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr("no text fits"));
}

}  // namespace
}  // namespace megatron
