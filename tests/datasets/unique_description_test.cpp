// The expected values were printed by Python's json and by megatron-core.
#include "megatron/datasets/unique_description.h"

#include <gtest/gtest.h>

#include "megatron/base/checksum.h"

namespace megatron {
namespace {

TEST(PythonFloat, EqualsRepr) {
  const std::pair<double, const char*> cases[] = {{0.1, "0.1"},
                                                  {1e-5, "1e-05"},
                                                  {123456789.0, "123456789.0"},
                                                  {1e16, "1e+16"},
                                                  {1e15, "1000000000000000.0"},
                                                  {1e-4, "0.0001"},
                                                  {2.0 / 3, "0.6666666666666666"},
                                                  {1.0, "1.0"},
                                                  {0.0, "0.0"},
                                                  {5e-324, "5e-324"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(python_float_repr(value), text);
}

TEST(PythonJson, EqualsDumps) {
  const JsonText value{{"a", JsonText::array({1, 2.5, nullptr})},
                       {"\xc3\xa9", "\xc3\xbc\n\xf0\x9f\x98\x80\x7f"},
                       {"e", JsonText::array()},
                       {"o", JsonText::object()}};
  EXPECT_EQ(python_json_dumps(value), R"({
    "a": [
        1,
        2.5,
        null
    ],
    "\u00e9": "\u00fc\n\ud83d\ude00\u007f",
    "e": [],
    "o": {}
})");
}

TEST(Description, HasMegatronCoresHash) {
  JsonText json;
  json["class"] = "GPTDataset";
  json["dataset_path"] = "/data/x_text_document";
  json["num_samples"] = 1000;
  json["index_split"] = "train";
  json["random_seed"] = 1234;
  json["sequence_length"] = 64;
  json["split"] = "969,30,1";
  json["split_matrix"] = to_json(parse_split("969,30,1"));
  json["tokenizer"] = to_json(TokenizerIdentity{.path = {}, .arguments = {{"vocab_size", "100"}}});
  EXPECT_EQ(md5_hex(python_json_dumps(json)), "ae63a66e2dcb93c7f77fa94ff98959af");
}

TEST(Description, SpellsBookends) {
  EXPECT_EQ(to_json(parse_split("0,1,0")).dump(), "[null,[0.0,1.0],null]");
  EXPECT_EQ(to_json(parse_split("99,1")).dump(), "[[0,0.99],[0.99,1.0],null]");
  EXPECT_EQ(to_json(std::optional<SplitMatrix>()).dump(), "null");
}

}  // namespace
}  // namespace megatron
