// Compares ids and texts with the real `sentencepiece` package (fixtures/sp_*.jsonl by
// make_fixtures.py), and checks what broken models say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/protobuf.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using testing::Case;
using testing::fixture;
using ::testing::HasSubstr;

class SentencePieceModel : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePieceModel, EncodesAndDecodesAsTheRealPackage) {
  const std::string name = GetParam();
  const auto tokenizer = testing::open({.tokenizer_model = fixture("sp_" + name + ".model")});
  EXPECT_EQ(tokenizer->name(), "SentencePieceTokenizer");
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eod(), 2);
  EXPECT_EQ(tokenizer->pad(), 3);
  const auto cases = testing::cases_of("sp_" + name);
  ASSERT_EQ(cases.size(), 33u);
  for (int again = 0; again < 2; ++again)  // words come from the cache the second time
    for (const Case& expected : cases) {
      EXPECT_EQ(tokenizer->encode(expected.line), expected.ids) << expected.line;
      EXPECT_EQ(tokenizer->decode(expected.ids, SpecialTokens::skip), expected.text);
      EXPECT_EQ(tokenizer->decode(expected.ids, SpecialTokens::keep), expected.kept);
    }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, SentencePieceModel,
                         ::testing::Values("unigram_bytes", "unigram_symbols", "bpe_bytes",
                                           "bpe_symbols", "bpe_unused"));

struct PieceOf {
  const char* text;
  float score = 0;
  std::uint64_t type = 1;
};

std::string model_of(const std::vector<PieceOf>& pieces, std::uint64_t model_type = 2) {
  ProtobufWriter model;
  for (const PieceOf& piece : pieces)
    model.add_bytes(1, ProtobufWriter()
                           .add_bytes(1, piece.text)
                           .add_float(2, piece.score)
                           .add_integer(3, piece.type)
                           .bytes());
  model.add_bytes(2, ProtobufWriter().add_integer(3, model_type).bytes());
  return model.bytes();
}

/// Merges by the definition: searches all pairs after every merge. −1 stands for unknown text, of
/// which a run counts once.
std::vector<std::int32_t> by_definition(const std::vector<PieceOf>& pieces,
                                        const std::vector<std::string>& characters) {
  std::vector<std::string> symbols = characters;
  const auto id_of = [&](const std::string& text) {
    for (std::size_t id = 1; id < pieces.size(); ++id)
      if (text == pieces[id].text) return static_cast<std::int32_t>(id);
    return -1;
  };
  for (;;) {
    std::size_t best = 0;
    std::int32_t best_id = -1;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::int32_t id = id_of(symbols[i] + symbols[i + 1]);
      const auto score = [&](std::int32_t of) {
        return pieces[static_cast<std::size_t>(of)].score;
      };
      if (id < 0 || (best_id >= 0 && score(id) <= score(best_id))) continue;
      best = i;
      best_id = id;
    }
    if (best_id < 0) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& symbol : symbols) {
    const std::int32_t id = id_of(symbol);
    if (id >= 0 || ids.empty() || ids.back() >= 0) ids.push_back(id);
  }
  return ids;
}

TEST(SentencePiece, BpeFollowsTheDefinition) {
  // "c", "é" and "文" are in pieces but no pieces themselves, "本" is in none.
  const std::vector<PieceOf> pieces = {{"<unk>", 0, 2}, {"▁", -20},   {"a", -21},  {"b", -22},
                                       {"中", -23},     {"ab", -1},   {"▁a", -3},  {"ba", -2},
                                       {"bc", -4},      {"aé", -5},   {"文b", -6}, {"abab", -7},
                                       {"▁ab", -8},     {"bcab", -9}, {"国", -24}, {"abaé", -10},
                                       {"aaaa", -11},   {"aa", -11},  {"éc", -12}, {"本b", -13}};
  const TemporaryFolder folder;
  const auto tokenizer =
      testing::open({.tokenizer_model = folder.write("m.model", model_of(pieces))});
  const std::vector<std::string> alphabet = {"a", "a", "b", "b", "c", "é", "中", "国", "文", "語"};
  std::mt19937 random(5);
  for (int turn = 0; turn < 3000; ++turn) {
    std::vector<std::string> characters = {"▁"};
    std::string text;
    for (std::size_t left = 1 + random() % (turn % 100 == 0 ? 200 : 20); left > 0; --left)
      characters.push_back(alphabet[random() % alphabet.size()]);
    for (std::size_t i = 1; i < characters.size(); ++i) text += characters[i];
    std::vector<std::int32_t> expected = by_definition(pieces, characters);
    std::ranges::replace(expected, -1, 0);
    EXPECT_EQ(tokenizer->encode(text), expected) << text;
  }
}

/// Finds the ids of the best sum, which is rounded to single precision at every piece, over the
/// whole text. The first of equal sums wins. Beyond 100000, sums begin at 0 again, as in version
/// 0.2.3 of the package.
std::vector<std::int32_t> best_by_definition(const std::vector<PieceOf>& pieces,
                                             const std::string& text) {
  struct End {
    float sum = 0;
    std::size_t id = 0, begin = 0;
  };
  std::vector<End> ends(text.size() + 1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (const float sum = ends[at].sum; ends[at].id > 0 && std::abs(sum) > 1e5F)
      for (std::size_t i = at; i < ends.size(); ++i) ends[i].sum -= sum;
    for (std::size_t id = 1; id < pieces.size() && (at == 0 || ends[at].id > 0); ++id) {
      const std::string_view piece = pieces[id].text;
      if (text.compare(at, piece.size(), piece) != 0) continue;
      End& end = ends[at + piece.size()];
      const float sum = pieces[id].score + ends[at].sum;
      if (end.id == 0 || sum > end.sum) end = {sum, id, at};
    }
  }
  std::vector<std::int32_t> ids;
  for (std::size_t at = text.size(); at > 0; at = ends[at].begin)
    ids.push_back(static_cast<std::int32_t>(ends[at].id));
  std::ranges::reverse(ids);
  return ids;
}

// Many words have segmentations whose sums differ by little: what is before them decides.
TEST(SentencePiece, UnigramFollowsTheDefinitionWhereRoundingDecides) {
  const std::vector<PieceOf> pieces = {
      {"<unk>", 0, 2},    {"▁", -1.5F},       {"a", -2.1F},     {"b", -2.3F},
      {"c", -2.7F},       {"▁a", -3.6001F},   {"ab", -4.4003F}, {"bc", -4.99995F},
      {"ca", -4.80002F},  {"▁b", -3.80001F},  {"abc", -7.101F}, {"▁ab", -5.9F},
      {"cab", -7.10004F}, {"▁abc", -8.5999F}, {"bb", -4.625F},  {"aab", -6.49999F}};
  const TemporaryFolder folder;
  const auto tokenizer =
      testing::open({.tokenizer_model = folder.write("m.model", model_of(pieces, 1))});
  std::mt19937 random(9);
  std::size_t depends_on_place = 0;
  for (const std::size_t words : {1u, 10u, 300u, 20000u}) {
    std::string text, normalized;
    for (std::size_t word = 0; word < words; ++word) {
      std::string letters;
      for (std::size_t left = 1 + random() % 9; left > 0; --left) letters += "abc"[random() % 3];
      text += (word == 0 ? "" : " ") + letters;
      normalized += "▁" + letters;
    }
    const std::vector<std::int32_t> expected = best_by_definition(pieces, normalized);
    EXPECT_TRUE(tokenizer->encode(text) == expected) << words << " words";
    std::vector<std::int32_t> alone;
    for (std::size_t begin = 0; begin < normalized.size();) {
      const std::size_t end = std::min(normalized.find("▁", begin + 1), normalized.size());
      const auto ids = best_by_definition(pieces, normalized.substr(begin, end - begin));
      alone.insert(alone.end(), ids.begin(), ids.end());
      begin = end;
    }
    if (alone != expected) ++depends_on_place;
  }
  EXPECT_GT(depends_on_place, 0u) << "the test has no word whose pieces depend on its place";
}

/// Returns a normalizer_spec that changes nothing but spaces to ▁.
std::string plain_normalizer() {
  return ProtobufWriter()
      .add_bytes(3, ProtobufWriter().add_integer(3, 0).add_integer(4, 0).bytes())
      .bytes();
}

std::string with_marks(std::string text) {
  for (std::size_t at = 0; (at = text.find(' ', at)) != std::string::npos;)
    text.replace(at, 1, "▁");
  return text;
}

// Since version 0.2.2 the package scores a user-defined piece of n bytes 0.1 (n − 1).
TEST(SentencePiece, UnigramTakesTheLongestUserDefinedPieces) {
  std::vector<PieceOf> pieces = {{"<unk>", 0, 2},   {"▁", -0.2F},   {"a", -3},
                                 {"▁a", -2.6F},     {"▁▁", 0, 4},   {"▁▁▁▁", 0, 4},
                                 {"▁▁▁▁▁▁▁", 0, 4}, {"▁▁▁a", -2.5F}};
  const TemporaryFolder folder;
  const auto tokenizer = testing::open(
      {.tokenizer_model = folder.write("m.model", model_of(pieces, 1) + plain_normalizer())});
  EXPECT_EQ(tokenizer->encode("    a"), (std::vector<std::int32_t>{5, 2}));
  for (PieceOf& piece : pieces)
    if (piece.type == 4)
      piece.score =
          static_cast<float>(0.1 * static_cast<double>(std::string_view(piece.text).size() - 1));
  std::mt19937 random(6);
  for (int turn = 0; turn < 500; ++turn) {
    std::string text;
    for (std::size_t left = 1 + random() % 40; left > 0; --left) text += "    a"[random() % 5];
    EXPECT_EQ(tokenizer->encode(text), best_by_definition(pieces, with_marks(text))) << text;
  }
}

// The package divides words before every space, and looks words up among ordinary pieces only.
TEST(SentencePiece, WordsAreNeitherUserDefinedPiecesNorBytes) {
  std::vector<PieceOf> pieces = {{"<unk>", 0, 2}, {"▁"}, {"▁a"}, {"▁▁", 0, 4}, {"▁▁▁a", 0, 4}};
  const TemporaryFolder folder;
  const auto words = testing::open(
      {.tokenizer_model = folder.write("w.model", model_of(pieces, 3) + plain_normalizer())});
  EXPECT_EQ(words->encode("   a"), (std::vector<std::int32_t>{1, 1, 2}));
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(format("<0x%02X>", byte));
  for (const std::string& byte : bytes) pieces.push_back({byte.c_str(), 0, 6});
  const std::string fallback =
      ProtobufWriter().add_bytes(2, ProtobufWriter().add_integer(35, 1).bytes()).bytes();
  const auto with_bytes =
      testing::open({.tokenizer_model = folder.write(
                         "b.model", model_of(pieces, 3) + fallback + plain_normalizer())});
  std::vector<std::int32_t> spelled;
  for (const char c : std::string("<0x41>")) spelled.push_back(5 + c);
  EXPECT_EQ(with_bytes->encode("<0x41>"), spelled);
}

// The ids of the package for long texts, whose sums are large.
TEST(SentencePiece, UnigramEncodesLongTextsAsTheRealPackage) {
  const auto tokenizer = testing::open({.tokenizer_model = fixture("sp_unigram_bytes.model")});
  for (const Case& expected : testing::cases_of("sp_unigram_bytes_long"))
    EXPECT_TRUE(tokenizer->encode(expected.line) == expected.ids) << expected.line.substr(0, 80);
}

TEST(SentencePiece, TheTypesOfMegatronReadTheSameFile) {
  const std::string model = fixture("sp_bpe_bytes.model");
  const auto ids = testing::open({.tokenizer_model = model})->encode("Hello world");
  for (const char* type :
       {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}) {
    const auto tokenizer = testing::open({.tokenizer_type = type, .tokenizer_model = model});
    EXPECT_EQ(tokenizer->name(), type);
    EXPECT_EQ(tokenizer->encode("Hello world"), ids);
  }
}

TEST(SentencePiece, SpecialPiecesAreThoseOfTheModel) {
  const TemporaryFolder folder;
  const auto tokenizer = testing::open(
      {.tokenizer_model = folder.write(
           "a.model",
           model_of({{"<unk>", 0, 2}, {"</s>", 0, 3}, {"<s>", 0, 1}, {"\xE2\x96\x81", -1}}))});
  EXPECT_EQ(tokenizer->eod(), 1);
  EXPECT_EQ(tokenizer->bos(), -1) << "<s> is an ordinary piece here";
  EXPECT_EQ(tokenizer->pad(), -1);
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_EQ(tokenizer->encode("xyz"), (std::vector<std::int32_t>{3, 0}))
      << "a run of unknown characters is one id";
  EXPECT_EQ(tokenizer->decode(std::vector{3, 0, 1, 9, -1}), " \xE2\x81\x87 ");
}

std::string error_of(const std::string& content) {
  const TemporaryFolder folder;
  return message_of([&] {
    testing::open({.tokenizer_type = "SentencePieceTokenizer",
                   .tokenizer_model = folder.write("a.model", content)});
  });
}

TEST(SentencePiece, BrokenModelsNameThePiece) {
  EXPECT_THAT(error_of(""), HasSubstr("there are no pieces"));
  EXPECT_THAT(error_of("\x0A\x7F"), HasSubstr("malformed"));
  EXPECT_THAT(error_of(model_of({{"a"}})), HasSubstr("there is no unknown piece"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}, {"b", 0, 2}})), HasSubstr("two unknown pieces"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}, {"a"}})), HasSubstr("piece 1 \"a\" is given twice"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}, {""}})), HasSubstr("piece 1: the text is empty"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}, {"\xFF"}})), HasSubstr("piece 1: the text is not"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}, {"b", 0, 9}})), HasSubstr("piece 1: type 9"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}, {"<0x00>", 0, 6}})), HasSubstr("byte fallback"));
  EXPECT_THAT(error_of(model_of({{"a", 0, 2}}, 7)), HasSubstr("model type 7"));
  EXPECT_THAT(
      error_of(model_of({{"a", 0, 2}}) +
               ProtobufWriter().add_bytes(3, ProtobufWriter().add_bytes(2, "map").bytes()).bytes()),
      HasSubstr("character map is malformed"));
}

TEST(SentencePiece, DamagedModelsEndInAnError) {
  const TemporaryFolder folder;
  std::mt19937 random(4);
  for (const char* name : {"sp_unigram_symbols.model", "sp_bpe_symbols.model"}) {
    const std::string whole = read_file(fixture(name));
    for (int round = 0; round < 200; ++round) {
      std::string content = whole;
      for (int change = 0; change < 4; ++change)
        content[random() % content.size()] = static_cast<char>(random());
      if (round % 3 == 0) content.resize(random() % content.size());
      try {
        const auto tokenizer = testing::open({.tokenizer_type = "SentencePieceTokenizer",
                                              .tokenizer_model = folder.write("a", content)});
        tokenizer->decode(tokenizer->encode("\xEF\xAC\x81 Hello \xC3\xA9 word \xE2\x85\xA7"));
      } catch (const UserError& error) {
        EXPECT_FALSE(error.parts().what.empty());
      }
    }
  }
}

}  // namespace
}  // namespace megatron
