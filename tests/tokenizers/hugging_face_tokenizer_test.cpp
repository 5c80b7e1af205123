// Compares ids and texts with the real `tokenizers` package (fixtures/*.jsonl by make_fixtures.py).
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::Case;
using testing::cases_of;
using testing::fixture;

class Family : public ::testing::TestWithParam<const char*> {};

TEST_P(Family, EncodesAndDecodesAsTheRealPackage) {
  const HuggingFaceTokenizer tokenizer(fixture(GetParam() + std::string(".json")));
  const auto cases = cases_of(GetParam());
  ASSERT_EQ(cases.size(), 100u);
  for (const Case& expected : cases) {
    EXPECT_EQ(tokenizer.encode(expected.line), expected.ids) << expected.line;
    EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::skip), expected.text);
    EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::keep), expected.kept);
  }
}

TEST_P(Family, EncodesTheSameFromManyThreads) {
  const HuggingFaceTokenizer tokenizer(fixture(GetParam() + std::string(".json")));
  const auto cases = cases_of(GetParam());
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (const Case& expected : cases) count += tokenizer.encode(expected.line) != expected.ids;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Family,
                         ::testing::Values("gpt2", "llama3", "qwen2", "flavours", "llama2",
                                           "metaspace", "strips", "bert", "t5", "word_level"));

/// A tokenizer.json of a BPE without merges; `parts` replaces fields of the file.
HuggingFaceTokenizer characters(const Json& vocab, const Json& parts) {
  Json json = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", Json::array()},
               {"normalizer", nullptr},
               {"pre_tokenizer", nullptr},
               {"post_processor", nullptr},
               {"decoder", nullptr},
               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  json.update(parts);
  const TemporaryFolder folder;
  return HuggingFaceTokenizer(folder.write("tokenizer.json", json.dump()));
}

Json added_token(int id, const char* content, bool lstrip, bool rstrip) {
  return {{"id", id},         {"content", content},  {"single_word", false}, {"lstrip", lstrip},
          {"rstrip", rstrip}, {"normalized", false}, {"special", true}};
}

using Ids = std::vector<std::int32_t>;

TEST(HuggingFaceTokenizer, NeitherCutsNorPadsADocument) {
  const Json truncation = {
      {"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  const Json padding = {{"strategy", {{"Fixed", 8}}},
                        {"direction", "Right"},
                        {"pad_to_multiple_of", nullptr},
                        {"pad_id", 0},
                        {"pad_type_id", 0},
                        {"pad_token", "a"}};
  const auto tokenizer =
      characters({{"a", 0}, {"b", 1}}, {{"truncation", truncation}, {"padding", padding}});
  EXPECT_EQ(tokenizer.encode("abba"), (Ids{0, 1, 1, 0}));
}

TEST(AddedTokens, TakeTheSpaceOnTheSidesTheyName) {
  const auto tokenizer =
      characters({{" ", 0}, {"a", 1}, {"b", 2}},
                 {{"added_tokens",
                   {added_token(3, "<l>", true, false), added_token(4, "<r>", false, true),
                    added_token(5, "<n>", false, false)}}});
  EXPECT_EQ(tokenizer.encode("a  <l>  b"), (Ids{1, 3, 0, 0, 2}));
  EXPECT_EQ(tokenizer.encode("a  <r>  b"), (Ids{1, 0, 0, 4, 2}));
  EXPECT_EQ(tokenizer.encode("a  <n>  b"), (Ids{1, 0, 0, 5, 0, 0, 2}));
  EXPECT_EQ(tokenizer.encode("a <r>  <r> <l>b"), (Ids{1, 0, 4, 4, 3, 2}));
  EXPECT_EQ(tokenizer.encode("a<r>  <l>b"), (Ids{1, 4, 3, 2}));
  // The package leaves a token out whose space the token before has taken, unless it does not look
  // for space before it.
  for (const bool lstrip : {false, true}) {
    const auto tab =
        characters({{" ", 0}, {"a", 1}, {"b", 2}},
                   {{"added_tokens",
                     {added_token(3, "<r>", false, true), added_token(4, "\t", lstrip, true)}}});
    EXPECT_EQ(tab.encode("a<r> \t b"), lstrip ? (Ids{1, 3, 2}) : (Ids{1, 3, 4, 2}));
    EXPECT_EQ(tab.encode("a \t b"), lstrip ? (Ids{1, 4, 2}) : (Ids{1, 0, 4, 2}));
  }
}

/// Runs `encode` or `decode` and returns the message of its error.
std::string error_of(const auto& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// The ids are those of Tokenizer.add_special_tokens() of the `tokenizers` package.
TEST(AddedTokens, AreExtendedWithSpecialOnes) {
  const Json json = {
      {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"unk_token", "a"}}},
      {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"added_tokens", {added_token(2, "<n>", false, false)}}};
  const TemporaryFolder folder;
  TokenizerConfig config;
  config.tokenizer_type = "MultimodalTokenizer";
  config.tokenizer_model = folder.write("tokenizer.json", json.dump());
  config.tokenizer_special_tokens = {"<image>", "b", "<n>", "<end>"};
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_EQ(tokenizer->encode("a <image>b <n><end> b"), (Ids{0, 3, 1, 2, 4, 1}));
  for (const std::int32_t id : {1, 2, 3, 4}) EXPECT_TRUE(tokenizer->is_special(id)) << id;
  EXPECT_FALSE(tokenizer->is_special(0));
  EXPECT_EQ(tokenizer->decode(Ids{0, 3, 1}, SpecialTokens::skip), "a");
  EXPECT_EQ(tokenizer->decode(Ids{0, 3, 1}, SpecialTokens::keep), "a <image> b");
  config.tokenizer_special_tokens = {""};
  EXPECT_THAT(error_of([&] { make_tokenizer(config); }), ::testing::HasSubstr("is empty"));
}

TEST(Components, MayMakeATextAHundredTimesAsLong) {
  const Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}};
  const auto once = characters({{"a", 0}}, {{"normalizer", replace}});
  EXPECT_EQ(once.encode(std::string(1000, 'a')).size(), 100'000u);
  const Json twice = {{"type", "Sequence"}, {"normalizers", {replace, replace}}};
  const Json decoded = {{"type", "Sequence"}, {"decoders", {replace, replace}}};
  const std::string message =
      "make a text more than 100 times as long: 1000 bytes become 10000000\n  fix: ";
  const std::string text(1000, 'a');
  EXPECT_THAT(error_of([&] {
                characters({{"a", 0}}, {{"normalizer", twice}}).encode(text);
              }),
              ::testing::HasSubstr(message));
  const Ids ids(1000, 0);
  EXPECT_THAT(error_of([&] {
                characters({{"a", 0}}, {{"decoder", decoded}}).decode(ids, SpecialTokens::keep);
              }),
              ::testing::HasSubstr(message));
}

TEST(Components, DoNotDoubleBytesAgainAndAgain) {
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json chain = {{"type", "Sequence"}, {"pretokenizers", std::vector<Json>(20, byte_level)}};
  const auto tokenizer = characters({{"a", 0}}, {{"pre_tokenizer", chain}});
  EXPECT_TRUE(tokenizer.encode("a").size() == 1);
  EXPECT_THAT(error_of([&] { tokenizer.encode("\u00e9"); }),
              ::testing::HasSubstr("2 bytes become 131072"));
}

struct Scheme {
  const char* name;
  Ids words, around_added;     ///< of "a b a" split at spaces, and of "a<s>b a"
  const char *decoded, *kept;  ///< of two marks and an a, and of a mark between a and b
};

TEST(Metaspace, MarksTheWordsThatItsSchemeNames) {
  const Json vocab = {{"▁", 0}, {"a", 1}, {"b", 2}};
  for (const Scheme& scheme :
       {Scheme{"first", {0, 1, 2, 1}, {0, 1, 3, 2, 0, 1}, " a", "a b"},
        Scheme{"always", {0, 1, 0, 2, 0, 1}, {0, 1, 3, 0, 2, 0, 1}, " a", "a b"},
        Scheme{"never", {1, 2, 1}, {1, 3, 2, 0, 1}, "  a", "a b"}}) {
    SCOPED_TRACE(scheme.name);
    const Json metaspace = {{"type", "Metaspace"},
                            {"replacement", "▁"},
                            {"prepend_scheme", scheme.name},
                            {"split", true}};
    const Json words = {{"type", "Sequence"},
                        {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}};
    const auto tokenizer = characters(vocab, {{"pre_tokenizer", words}, {"decoder", metaspace}});
    EXPECT_EQ(tokenizer.encode("a b a"), scheme.words);
    EXPECT_EQ(tokenizer.decode(Ids{0, 0, 1}, SpecialTokens::keep), scheme.decoded);
    EXPECT_EQ(tokenizer.decode(Ids{1, 0, 2}, SpecialTokens::keep), scheme.kept);
    const auto with_added =
        characters(vocab, {{"pre_tokenizer", metaspace},
                           {"added_tokens", Json::array({added_token(3, "<s>", false, false)})}});
    EXPECT_EQ(with_added.encode("a<s>b a"), scheme.around_added);
  }
}

// The scheme "first" marks a word that begins with the first character of the original text. The
// values are the package's.
TEST(Metaspace, DoesNotMarkAFirstWordBehindRemovedText) {
  const Json vocab = {{"▁", 0}, {"a", 1}, {"b", 2}};
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  const auto stripped = characters(vocab, {{"normalizer", strip}, {"pre_tokenizer", metaspace}});
  EXPECT_EQ(stripped.encode(" a b"), (Ids{1, 0, 2}));
  EXPECT_EQ(stripped.encode("a b"), (Ids{0, 1, 0, 2}));
  EXPECT_EQ(stripped.encode(std::string(5000, ' ') + "a b"), (Ids{1, 0, 2}));
  const auto replace = [](const char* pattern, const char* content) {
    return Json{{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
  };
  const auto first_is_marked = [&](const Json& normalizer, const std::string& text) {
    const auto tokenizer =
        characters(vocab, {{"normalizer", normalizer}, {"pre_tokenizer", metaspace}});
    return tokenizer.encode(text) == Ids{0, 1};
  };
  EXPECT_TRUE(first_is_marked(replace("x", "a"), "x"));
  EXPECT_FALSE(first_is_marked(replace("x+", "a"), "xx")) << "it has the place of the second x";
  EXPECT_FALSE(first_is_marked(replace("^x", ""), "xa"));
  const Json ligature = {
      {"type", "Sequence"},
      {"normalizers", {{{"type", "NFKC"}}, replace("f", ""), replace("i", "a")}}};
  EXPECT_TRUE(first_is_marked(ligature, "\ufb01")) << "both letters have the place of the ligature";
  EXPECT_FALSE(first_is_marked(ligature, "fi"));
  const Json prefix = {{"type", "Prepend"}, {"prepend", "b"}};
  EXPECT_TRUE(
      first_is_marked({{"type", "Sequence"}, {"normalizers", {prefix, replace("b", "")}}}, "a"));
  const Json words = {{"type", "Sequence"},
                      {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}};
  EXPECT_EQ(characters(vocab, {{"pre_tokenizer", words}}).encode(" a b"), (Ids{1, 2}));
}

// The package gives every character that a normalizer or ByteLevel makes of one its place.
TEST(Metaspace, MarksEveryWordOfTheFirstCharacter) {
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  const Json letters = {{"type", "FixedLength"}, {"length", 1}};
  const auto of_parts = [&](const Json& vocab, const Json& parts, const Json& normalizer) {
    return characters(vocab, {{"normalizer", normalizer},
                              {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", parts}}}});
  };
  const auto compatible =
      of_parts({{"▁", 0}, {"f", 1}, {"i", 2}}, {letters, metaspace}, {{"type", "NFKC"}});
  EXPECT_EQ(compatible.encode("\ufb01f"), (Ids{0, 1, 0, 2, 1}));
  EXPECT_EQ(compatible.encode("fif"), (Ids{0, 1, 2, 1}));
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", true},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const auto bytes = of_parts({{"▁", 0}, {"Ġ", 1}, {"Ã", 2}, {"©", 3}, {"a", 4}},
                              {byte_level, letters, metaspace}, nullptr);
  EXPECT_EQ(bytes.encode("\u00e9a"), (Ids{0, 1, 0, 2, 0, 3, 4}));
}

TEST(ByteFallback, DecodesEachRunOfBytesByItself) {
  const auto tokenizer = characters({{"a", 0}, {"<0xC3>", 1}, {"<0xA9>", 2}, {"<0xE2>", 3}},
                                    {{"decoder", {{"type", "ByteFallback"}}}});
  const auto decode = [&](const Ids& ids) { return tokenizer.decode(ids, SpecialTokens::keep); };
  EXPECT_EQ(decode({1, 2, 0}), "éa");
  EXPECT_EQ(decode({0, 1, 2}), "aé");
  EXPECT_EQ(decode({1, 0, 2}), "�a�");
  EXPECT_EQ(decode({3, 1, 2}), "���") << "one mark for each byte of a run that is not UTF-8";
  EXPECT_EQ(decode({0, 3, 3, 0}), "a��a");
}

TEST(Gpt2BpeTokenizer, GivesTheIdsOfTheSameTokenizerJson) {
  const Gpt2BpeTokenizer tokenizer(fixture("gpt2/vocab.json"), fixture("gpt2/merges.txt"));
  int compared = 0;
  for (const Case& expected : cases_of("gpt2")) {
    EXPECT_EQ(tokenizer.encode(expected.line), expected.ids) << expected.line;
    EXPECT_EQ(tokenizer.decode(expected.ids, SpecialTokens::skip), expected.text);
    ++compared;
  }
  EXPECT_GT(compared, 70);
  EXPECT_EQ(tokenizer.eod(), 700);
  EXPECT_EQ(tokenizer.vocab_size(), 701);
}

// The ids are those of transformers' GPT2Tokenizer on the same files.
TEST(Gpt2BpeTokenizer, ReadsTheEndOfTextMarkInADocumentAsItsToken) {
  const Gpt2BpeTokenizer tokenizer(fixture("gpt2/vocab.json"), fixture("gpt2/merges.txt"));
  EXPECT_EQ(tokenizer.encode("hi<|endoftext|>"), (Ids{71, 72, 700}));
  EXPECT_EQ(tokenizer.encode(" a <|endoftext|> b<|endoftext|><|endoftext|>\n c"),
            (Ids{402, 220, 700, 220, 65, 700, 700, 198, 272}));
  EXPECT_EQ(tokenizer.encode("x<<|endoftext|>>"), (Ids{87, 27, 700, 29}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|"), (Ids{27, 91, 68, 77, 417, 69, 83, 543, 83, 91}));
  EXPECT_EQ(tokenizer.decode(Ids{71, 700}, SpecialTokens::keep), "h<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(Ids{71, 700}, SpecialTokens::skip), "h");
}

TEST(HuggingFaceTokenizer, TakesSpecialIdsFromTheFilesBeside) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", read_file(fixture("qwen2.json")));
  const HuggingFaceTokenizer alone(folder.path());
  const auto id_of = [&](const char* token) { return alone.encode(token).at(0); };
  EXPECT_EQ(alone.eod(), id_of("<|endoftext|>"));
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}, )"
                                        R"("pad_token": "<|endoftext|>", "bos_token": null})");
  const HuggingFaceTokenizer tokenizer(folder.path());
  EXPECT_EQ(tokenizer.eod(), id_of("<|im_end|>"));
  EXPECT_EQ(tokenizer.pad(), id_of("<|endoftext|>"));
  EXPECT_EQ(tokenizer.bos(), -1);
  EXPECT_EQ(tokenizer.vocab_size(), id_of("</think>") + 1) << "the last added token";
  EXPECT_TRUE(tokenizer.is_special(id_of("<|im_start|>")));
  EXPECT_FALSE(tokenizer.is_special(id_of("<think>"))) << "added but not special";
}

TEST(HuggingFaceTokenizer, ReadsFilesOfEverySize) {
  // The parser reads beyond the end of a file, which a file of whole pages does not have.
  const TemporaryFolder folder;
  std::string json = read_file(fixture("qwen2.json"));
  const std::vector<std::int32_t> ids =
      testing::open({.tokenizer_model = fixture("qwen2.json")})->encode("Hello \\ \"world\"");
  json.resize((json.size() + 4095) / 4096 * 4096 - 65, ' ');
  for (int size = -65; size <= 1; ++size, json += ' ')
    EXPECT_EQ(testing::open({.tokenizer_model = folder.write("tokenizer.json", json)})
                  ->encode("Hello \\ \"world\""),
              ids)
        << size;
}

TEST(HuggingFaceTokenizer, DropsIdsOfThePaddedVocabularyInDecode) {
  const HuggingFaceTokenizer tokenizer(fixture("gpt2.json"));
  const auto ids = tokenizer.encode("hello");
  std::vector<std::int32_t> padded = ids;
  padded.insert(padded.begin(), {900, -1, 1 << 30});
  EXPECT_EQ(tokenizer.decode(padded, SpecialTokens::skip), "hello");
}

}  // namespace
}  // namespace megatron
