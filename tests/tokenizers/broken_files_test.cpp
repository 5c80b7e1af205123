// Every broken tokenizer file gives one UserError that names the file and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using testing::fixture;
using ::testing::HasSubstr;

const Json kTiny = Json::parse(R"({
  "added_tokens": [{"id": 3, "content": "<s>", "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");

void expect_error(const testing::TokenizerOptions& choice, const std::string& file,
                  const std::string& message) {
  try {
    testing::open(choice);
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file), HasSubstr(message)));
    EXPECT_EQ(error.parts().what.find('\n'), std::string::npos);
  }
}

struct Patch {
  const char* pointer;  ///< JSON pointer into kTiny
  const char* value;    ///< JSON, or empty to remove the member
  const char* message;
};

class BrokenTokenizerJson : public ::testing::TestWithParam<Patch> {};

TEST_P(BrokenTokenizerJson, NamesFileAndField) {
  const auto [pointer, value, message] = GetParam();
  Json root = kTiny;
  const Json::json_pointer at(pointer);
  if (*value == '\0') {
    root[at.parent_pointer()].erase(at.back());
  } else {
    root[at] = Json::parse(value);
  }
  const TemporaryFolder folder;
  const std::string file = folder.write("tokenizer.json", root.dump());
  expect_error({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = file}, file, message);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenTokenizerJson,
    ::testing::Values(
        Patch{"/model", "", "field 'model' is missing"},
        Patch{"/model", "[]", "model: expected a JSON object"},
        Patch{"/model/type", "\"Nope\"", "model: type 'Nope' is not supported"},
        Patch{"/model/type", "\"Unigram\"", "model: field 'vocab' must be an array"},
        Patch{"/model/type", "\"WordPiece\"", "unk_token \"[UNK]\" is not in the vocabulary"},
        Patch{"/model", R"({"type": "Unigram", "unk_id": 0, "vocab": [["a", 0], ["b"]]})",
              "model.vocab[1] must be [token, score]"},
        Patch{"/model", R"({"type": "Unigram", "unk_id": 1, "vocab": [["a", 0]]})",
              "field 'unk_id' must be an id"},
        Patch{"/model", R"({"type": "Unigram", "vocab": []})", "model.vocab has no tokens"},
        Patch{"/model",
              R"({"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0}, )"
              R"("max_input_chars_per_word": -1})",
              "field 'max_input_chars_per_word' must not be negative"},
        Patch{"/model/type", "7", "model: field 'type' must be a string"},
        Patch{"/model/vocab", "", "model: field 'vocab' is missing"},
        Patch{"/model/vocab", "[]", "model.vocab must be an object"},
        Patch{"/model/vocab", "{}", "model.vocab has no tokens"},
        Patch{"/model/vocab/b", "\"1\"", "the id of token \"b\" must be an integer"},
        Patch{"/model/vocab/b", "1.5", "the id of token \"b\" must be an integer"},
        Patch{"/model/vocab/b", "-1", "the id of token \"b\" must be from 0"},
        Patch{"/model/vocab/b", "4294967296", "the id of token \"b\" must be from 0"},
        Patch{"/model/vocab/b", "18446744073709551615", "the id of token \"b\" must be from 0"},
        Patch{"/model/vocab/b", "0", "id 0 is given twice"},
        Patch{"/model/vocab/ab", "", "needs token \"ab\""},
        Patch{"/model/merges", "", "model: field 'merges' is missing"},
        Patch{"/model/merges", "{}", "model: field 'merges' must be an array"},
        Patch{"/model/merges/0", "[\"a\"]", "model.merges[0] must be"},
        Patch{"/model/merges/0", "[\"a\", 1]", "model.merges[0] must be"},
        Patch{"/model/merges/0", "\"ab\"", "model.merges[0] must be"},
        Patch{"/model/merges/0", "\"a b c\"", "model.merges[0] must be"},
        Patch{"/model/merges/0", "\"a z\"", "needs token \"z\""},
        Patch{"/model/unk_token", "\"<unk>\"", "unk_token \"<unk>\" is not in the vocabulary"},
        Patch{"/model/unk_token", "3", "field 'unk_token' must be"},
        Patch{"/model/dropout", "0.1", "model: field 'dropout' must be null"},
        Patch{"/model/byte_fallback", "\"yes\"", "field 'byte_fallback' must be"},
        Patch{"/added_tokens", "{}", "field 'added_tokens' must be an array"},
        Patch{"/added_tokens/0", "1", "added_tokens[0]: expected a JSON object"},
        Patch{"/added_tokens/0/content", "\"\"", "added_tokens[0]: field 'content' is empty"},
        Patch{"/added_tokens/0/special", "", "added_tokens[0]: field 'special' is missing"},
        Patch{"/added_tokens/0/lstrip", "0",
              "added_tokens[0]: field 'lstrip' must be true or false"},
        Patch{"/added_tokens/0/id", "-3", "added_tokens[0]: field 'id' must be from 0"},
        Patch{"/added_tokens/0/id", "99999999999", "added_tokens[0]: field 'id' must be from 0"},
        Patch{"/added_tokens/0/id", "9", "token \"<s>\" must have id 3"},
        Patch{"/added_tokens/1",
              R"({"id": 3, "content": "x", "single_word": false, )"
              R"("lstrip": false, "rstrip": false, "normalized": false, "special": true})",
              "added_tokens[1]: id 3 is given twice"},
        Patch{"/normalizer", R"({"type": "Precompiled"})",
              "normalizer: field 'precompiled_charsmap' is missing"},
        Patch{"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AA="})",
              "normalizer: field 'precompiled_charsmap' must be base64"},
        Patch{"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAA"})",
              "normalizer.precompiled_charsmap: the precompiled character map is malformed"},
        Patch{"/pre_tokenizer", R"({"type": "CharDelimiterSplit", "delimiter": "ab"})",
              "field 'delimiter' must be one character"},
        Patch{"/pre_tokenizer", R"({"type": "FixedLength", "length": 0})",
              "field 'length' must be at least 1"},
        Patch{"/normalizer",
              R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nope"}]})",
              "normalizer.normalizers[1]: type 'Nope'"},
        Patch{"/normalizer", R"({"type": "Replace", "content": ""})",
              "normalizer: field 'pattern' is missing"},
        Patch{"/normalizer", "\"NFC\"", "normalizer: expected a JSON object"},
        Patch{"/pre_tokenizer",
              R"({"type": "Split", "pattern": {"Regex": "(a"}, )"
              R"("behavior": "Isolated", "invert": false})",
              "pre_tokenizer.pattern: the regular expression is not usable"},
        Patch{"/pre_tokenizer",
              R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways", )"
              R"("invert": false})",
              "field 'behavior' must be"},
        Patch{"/pre_tokenizer",
              R"({"type": "Split", "pattern": "a", "behavior": "Isolated", "invert": false})",
              "field 'pattern' must be"},
        Patch{"/pre_tokenizer", R"({"type": "OtherSplit"})",
              "pre_tokenizer: type 'OtherSplit' is not supported"},
        Patch{"/pre_tokenizer", R"({"type": "Sequence"})",
              "pre_tokenizer: field 'pretokenizers' is missing"},
        Patch{"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})",
              "field 'replacement' must be one character"},
        Patch{"/post_processor", R"({"type": "Other"})",
              "post_processor: type 'Other' is not supported"},
        Patch{"/post_processor",
              R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], )"
              R"("special_tokens": {}})",
              "post_processor.special_tokens: field '<s>' is missing"},
        Patch{"/post_processor",
              R"({"type": "TemplateProcessing", "single": [], "special_tokens": {}})",
              "must hold the sequence A exactly once"},
        Patch{"/post_processor",
              R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "s"}}, )"
              R"({"Sequence": {"id": "A"}}], "special_tokens": {"s": {"ids": [77]}}})",
              "post_processor.special_tokens.s: ids must be integers from 0 to 3"},
        Patch{"/decoder", R"({"type": "Other"})", "decoder: type 'Other' is not supported"},
        Patch{"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
              "must not be negative"}));

TEST(BrokenTokenizerJson, TheUnbrokenOneIsAccepted) {
  const TemporaryFolder folder;
  const auto tokenizer =
      testing::open({.tokenizer_model = folder.write("tokenizer.json", kTiny.dump())});
  EXPECT_EQ(tokenizer->encode("ab<s>a"), (std::vector<std::int32_t>{2, 3, 0}));
}

TEST(BrokenTokenizerJson, Truncated) {
  const std::string whole = kTiny.dump();
  const TemporaryFolder folder;
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    const std::string file = folder.write("tokenizer.json", whole.substr(0, size));
    expect_error({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = file}, file,
                 "not valid JSON");
  }
}

TEST(BrokenTokenizerJson, FilesBeside) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", kTiny.dump());
  const std::pair<const char*, const char*> table[] = {
      {R"({"eos_token": "</s>"})", "eos_token \"</s>\" is not in the vocabulary"},
      {R"({"eos_token": 3})", "field 'eos_token' must be a string"},
      {R"({"eos_token": {"text": "<s>"}})", "eos_token: field 'content' is missing"},
      {"[]", "must be a JSON object"},
      {"{", "not valid JSON"}};
  for (const auto& [content, message] : table)
    expect_error({.tokenizer_model = folder.path()}, folder.write("tokenizer_config.json", content),
                 message);
}

TEST(BrokenGpt2Files, NameFileAndLine) {
  const TemporaryFolder folder;
  const std::string vocab = fixture("gpt2/vocab.json"), merges = fixture("gpt2/merges.txt");
  const auto with_vocab = [&](std::string_view content, const std::string& message) {
    const std::string file = folder.write("vocab.json", content);
    expect_error({.tokenizer_type = "GPT2BPETokenizer", .vocab_file = file, .merge_file = merges},
                 "vocab.json", message);
  };
  with_vocab("", "not valid JSON");
  with_vocab("[1]", "must be an object of tokens and ids");
  with_vocab("{\"a\": -1}", "must be from 0");
  Json tokens = read_json(vocab);
  tokens.erase("<|endoftext|>");
  with_vocab(tokens.dump(), "\"<|endoftext|>\" is missing");
  tokens = read_json(vocab);
  tokens["\u0143"] = 5000;
  tokens.erase("!");
  with_vocab(tokens.dump(), "token \"!\" (byte 33) is missing");

  const auto with_merges = [&](std::string_view content, const std::string& message) {
    const std::string file = folder.write("merges.txt", content);
    expect_error({.tokenizer_type = "GPT2BPETokenizer", .vocab_file = vocab, .merge_file = file},
                 file, message);
  };
  with_merges("", "has no merges");
  with_merges("#version: 0.2\nh e\nl\n", "line 3 must be two tokens");
  with_merges("#version: 0.2\nh e l\n", "line 2 must be two tokens");
  with_merges("#version: 0.2\n\nh e\n", "line 2 must be two tokens");
  with_merges("#version: 0.2\nq\u0141 z\n", "which is not in the vocabulary");
  expect_error(
      {.tokenizer_type = "GPT2BPETokenizer", .vocab_file = vocab, .merge_file = folder / "absent"},
      "absent", "cannot open");
}

TEST(BrokenJson, MissingCommasAreNamedByLine) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("tokenizer.json", R"({"version": "1.0", "added": "x"], "model": {}})");
  expect_error({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = file}, file,
               "not valid JSON at column ");
}

TEST(BrokenJson, DeeplyNestedComponentsAreRefused) {  // readers of components call themselves
  const TemporaryFolder folder;
  std::string normalizer;
  for (int i = 0; i < 60'000; ++i) normalizer += R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 60'000; ++i) normalizer += "]}";
  const std::string file =
      folder.write("tokenizer.json", "{\"normalizer\":" + normalizer +
                                         R"(,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  expect_error({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = file}, file,
               "values are nested deeper than");
}

}  // namespace
}  // namespace megatron
