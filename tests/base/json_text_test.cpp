#include "megatron/base/json_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "megatron/base/json.h"

namespace megatron {
namespace {

std::string dump(const OrderedJson& json, int indent = -1) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

/// Builds the same value with the peer and with ours.
template <class Value>
Value example() {
  Value json{{"name", "run"},
             {"rank", 3},
             {"bytes", std::uint64_t{18446744073709551615U}},
             {"low", std::numeric_limits<std::int64_t>::min()},
             {"ok", true},
             {"nothing", nullptr},
             {"shape", std::vector<std::int64_t>{2, 3}},
             {"no", std::vector<std::string>{}},
             {"nested", {{"a", {{"b", "c"}}}, {"half", 0.5F}}},
             {"pair", Value::array({1, "two"})},
             {"object", Value::object()}};
  json["rank"] = 4;
  json["counts"]["x"] = 1;
  json["list"].push_back({{"i", 0}});
  json["nested"].update(Value{{"half", 1}, {"more", std::string_view("text")}});
  json.erase("ok");
  json["text"] = std::string("k");
  return json;
}

TEST(JsonText, PrintsValuesAsThePeerDoes) {
  const auto ours = example<JsonText>();
  const auto peer = example<OrderedJson>();
  for (const int indent : {-1, 0, 1, 2, 4}) EXPECT_EQ(ours.dump(indent), dump(peer, indent));
  EXPECT_EQ(JsonText().dump(), "null");
  EXPECT_EQ(JsonText(std::optional<int>()).dump(), "null");
  EXPECT_EQ(JsonText(std::optional(7)).dump(2), "7");
  EXPECT_EQ(JsonText::array().dump(2), "[]");
}

TEST(JsonText, EscapesTextsAndKeysAsThePeerDoes) {
  std::vector<std::string> texts{"",
                                 "\u00e9\u2581\U0001f600",
                                 "\xff",
                                 "a\xe2\x82",
                                 "\xe0\x80\x80",
                                 "\xed\xa0\x80",
                                 "\xf4\x90\x80\x80",
                                 "\xe2\x82z",
                                 "\xc3"};
  for (int c = 0; c < 256; ++c) texts.emplace_back(3, static_cast<char>(c));
  for (const std::string& text : texts) {
    JsonText ours;
    OrderedJson peer;
    ours[text] = text;
    peer[text] = text;
    EXPECT_EQ(ours.dump(), dump(peer));
  }
}

TEST(JsonText, PrintsDoublesAsThePeerDoes) {
  std::vector<double> values{0.0,
                             -0.0,
                             1.0,
                             100.0,
                             1e15,
                             1e16,
                             123456789012345678.0,
                             1e22,
                             1e-4,
                             1e-5,
                             5e-324,
                             0.1,
                             1.0 / 3,
                             1e300,
                             -2.5e-7,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-1000, 1000);
  for (int i = 0; i < 100'000; ++i) {
    values.push_back(std::bit_cast<double>(random()));
    values.push_back(uniform(random));
  }
  for (const double value : values) ASSERT_EQ(JsonText(value).dump(), dump(value));
}

}  // namespace
}  // namespace megatron
