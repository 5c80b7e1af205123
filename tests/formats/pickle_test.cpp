#include "megatron/formats/pickle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "formats/fixtures.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Bytes of a literal with NUL bytes.
template <std::size_t size>
std::string raw(const char (&text)[size]) {
  return {text, size - 1};
}

/// Returns what text_of() of make_formats_fixtures.py returns.
std::string text_of(const PickleValue& value) {
  const auto all = [&] {
    std::vector<std::string> texts;
    for (const PickleValue& item : value.items("it")) texts.push_back(text_of(item));
    if (value.is(PickleKind::set)) std::ranges::sort(texts);
    return joined_text(texts);
  };
  switch (value.kind()) {
    case PickleKind::none:
      return "None";
    case PickleKind::boolean:
      return value.boolean("it") ? "True" : "False";
    case PickleKind::integer:
      return std::to_string(value.integer("it"));
    case PickleKind::big_integer:
      return "big:" + to_hex(value.bytes("it"));
    case PickleKind::real: {
      const double number = value.real("it");
      std::string bytes(reinterpret_cast<const char*>(&number), sizeof number);
      std::ranges::reverse(bytes);
      return "f:" + to_hex(bytes);
    }
    case PickleKind::bytes:
      return "b:" + to_hex(value.bytes("it"));
    case PickleKind::text:
      return "t:" + to_hex(value.text("it"));
    case PickleKind::list:
      return "[" + all() + "]";
    case PickleKind::tuple:
      return "(" + all() + ")";
    case PickleKind::set:
      return "{" + all() + "}";
    case PickleKind::dict: {
      std::vector<std::string> texts;
      for (const auto& [key, item] : value.entries("it"))
        texts.push_back(text_of(key) + ": " + text_of(item));
      return "{" + joined_text(texts) + "}";
    }
    default:
      return value.description();
  }
}

TEST(Pickle, ReadsWhatPythonWrites) {
  std::ifstream lines(fixture("pickles.json"));
  int num_pickles = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto data = nlohmann::json::parse(line);
    const std::string name = data["name"];
    for (const std::string hex : data["pickles"]) {
      SCOPED_TRACE(name + " " + hex.substr(0, 20));
      const std::string bytes = from_hex(hex);
      const Pickle pickle(bytes + "what follows", name);
      EXPECT_EQ(pickle.num_bytes(), bytes.size());
      EXPECT_EQ(text_of(pickle.root()), data["text"].get<std::string>());
      ++num_pickles;
    }
  }
  EXPECT_GE(num_pickles, 60);
}

TEST(Pickle, OfEveryLengthButItsOwnIsRefused) {
  std::ifstream lines(fixture("pickles.json"));
  for (std::string line; std::getline(lines, line);) {
    const auto data = nlohmann::json::parse(line);
    if (data["name"] == "long") continue;
    for (const std::string hex : data["pickles"]) {
      const std::string bytes = from_hex(hex);
      for (std::size_t size = 0; size < bytes.size(); ++size)
        EXPECT_THROW(Pickle(bytes.substr(0, size), "cut"), UserError) << hex << " " << size;
    }
  }
}

TEST(Pickle, RunsNothing) {
  // What pickle.loads() would run as a shell command, in three ways.
  for (const std::string bytes :
       {"cos\nsystem\n(S'touch /tmp/x'\ntR.", "(S'touch /tmp/x'\nios\nsystem\n.",
        "(cos\nsystem\nS'touch /tmp/x'\no."}) {
    const Pickle pickle(bytes, "evil");
    EXPECT_TRUE(pickle.root().is_object_of("os.system")) << bytes;
    EXPECT_EQ(text_of(pickle.root().args()), "(t:" + to_hex("touch /tmp/x") + ")");
    EXPECT_EQ(pickle.root().description(), "an object of 'os.system'");
  }
  const Pickle stack_global(raw("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."), "evil");
  EXPECT_TRUE(stack_global.root().is_object_of("posix.system"));
}

TEST(Pickle, KeepsWhatAnObjectIsMadeOf) {
  // collections.deque([1], maxlen=5) with attributes: REDUCE, APPENDS, SETITEMS and BUILD.
  const Pickle pickle(raw("\x80\x02"
                          "ccollections\ndeque\n)K\x05\x86R(K\x01"
                          "e(U\x01kK\x02u}U\x01"
                          "aK\x03sb."),
                      "object");
  const PickleValue& object = pickle.root();
  EXPECT_TRUE(object.is_object_of("collections.deque"));
  EXPECT_EQ(text_of(object.args()), "((), 5)");
  EXPECT_EQ(text_of(object.appended()), "[1]");
  EXPECT_EQ(text_of(object.state()), "{t:61: 3}");
  EXPECT_EQ(object.find("k")->integer("k"), 2) << "items come before attributes";
  EXPECT_FALSE(object.find("a"));
  const Pickle with_keywords(raw("\x80\x04"
                                 "cm\nA\n(K\x01t}U\x01kK\x02s\x92."),
                             "object");
  EXPECT_EQ(text_of(with_keywords.root().args()), "(1)");
  EXPECT_EQ(text_of(with_keywords.root().keywords()), "{t:6b: 2}");
  // Protocols 0 to 2 make objects with helpers of copyreg.
  for (const std::string& bytes :
       {raw("ccopy_reg\n_reconstructor\n(cm\nA\nc__builtin__\nobject\nNtR}U\x01xK\x07sb."),
        raw("ccopyreg\n__newobj__\n(cm\nA\ntR}U\x01xK\x07sb."),
        raw("cm\nA\n)\x81}U\x01xK\x07sb.")}) {
    const Pickle object_of(bytes, "object");
    EXPECT_TRUE(object_of.root().is_object_of("m.A"));
    EXPECT_EQ(text_of(object_of.root().args()), "()");
    EXPECT_EQ(object_of.root().at("x", "it").integer("x"), 7);
  }
}

TEST(Pickle, MakesDataOfCallsThatOnlyMakeData) {
  const auto made = [](const std::string& bytes) { return text_of(Pickle(bytes, "x").root()); };
  EXPECT_EQ(made("ctorch\nSize\n((I4\nI5\nttR."), "(4, 5)");
  EXPECT_EQ(made("ccollections\nOrderedDict\n((lp0\n(lp1\nI1\naI2\naatR."), "{1: 2}");
  EXPECT_EQ(made("ccollections\nOrderedDict\n)R(I1\nI2\nu}(I3\nI4\nub."), "{1: 2}")
      << "attributes are dropped";
  EXPECT_EQ(made("c__builtin__\nset\n((lp0\nI1\natR."), "{1}");
  EXPECT_EQ(made("c__builtin__\nbytes\n)R."), "b:");
  EXPECT_EQ(made("c_codecs\nencode\n(V\\u00ffa\nVlatin1\ntR."), "b:ff61");
  EXPECT_EQ(made("c_codecs\nencode\n(V\\u0100\nVlatin1\ntR."), "an object of '_codecs.encode'");
  EXPECT_EQ(made("c_codecs\nencode\n(Va\nVrot13\ntR."), "an object of '_codecs.encode'");
}

TEST(Pickle, SharesValuesAndEndsWithCycles) {
  const Pickle pickle("(lp0\ng0\na.", "cycle");  // l = []; l.append(l)
  const auto& items = pickle.root().items("it");
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(&items[0].items("it"), &items);
  // Doubling forty times: lists that would have 2^40 elements if they were copied.
  std::string bomb = "]";
  for (int i = 0; i < 40; ++i)
    bomb += "q" + std::string(1, static_cast<char>(i)) + "]h" +
            std::string(1, static_cast<char>(i)) + "ah" + std::string(1, static_cast<char>(i)) +
            "a";
  EXPECT_EQ(Pickle(bomb + ".", "bomb").root().items("it").size(), 2U);
  // A million lists in each other: nothing recurses.
  const std::string deep = std::string(1'000'000, ']') + std::string(999'999, 'a') + ".";
  EXPECT_EQ(Pickle(deep, "deep").root().items("it").size(), 1U);
}

TEST(Pickle, KeepsPersistentIdsInOrder) {
  const Pickle pickle("(Pfirst\nV2nd\nQt.", "ids");
  ASSERT_EQ(pickle.persistent_ids().size(), 2U);
  EXPECT_EQ(pickle.persistent_ids()[0].persistent_id().text("id"), "first");
  EXPECT_EQ(pickle.root().items("it")[1].persistent_id().text("id"), "2nd");
}

struct Broken {
  std::string bytes;
  std::vector<std::string> words;
};

TEST(Pickle, NamesByteAndOpcodeOfWhatItRefuses) {
  const std::vector<Broken> all{
      {"", {"byte 0", "STOP", "0 are left"}},
      {"N", {"byte 1", "STOP"}},
      {"N\xfe", {"byte 1", "254", "no opcode"}},
      {".", {"byte 0", "STOP", "the stack has no value"}},
      {raw("\x80\x06N."), {"byte 0", "PROTO", "6"}},
      {raw("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), {"byte 2", "FRAME"}},
      {raw("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), {"byte 0", "BINBYTES8"}},
      {raw("\x8d\0\0\0\0\0\0\0\x80."), {"BINUNICODE8"}},
      {raw("X\xff\xff\xff\xff."), {"BINUNICODE", "4294967295"}},
      {raw("T\xff\xff\xff\xff."), {"BINSTRING", "negative: -1"}},
      {raw("\x8b\xff\xff\xff\xff."), {"LONG4", "negative"}},
      {raw("\x8b\x81\0\0\0") + std::string(129, 'x') + ".", {"LONG4", "129 bytes"}},
      {"I12x\n.", {"INT", "'12x'"}},
      {"I9223372036854775808\n.", {"INT", "64 bits"}},
      {"Fx\n.", {"FLOAT", "'x'"}},
      {"I5", {"INT", "no end"}},
      {"Sabc\n.", {"STRING", "quotes"}},
      {"S'\\q'\n.", {"STRING", "escape"}},
      {"S'\\x1'\n.", {"STRING", "escape"}},
      {"V\\u12\n.", {"UNICODE", "escape"}},
      {"V\\U00110000\n.", {"UNICODE", "escape"}},
      {"g7\n.", {"GET", "no value 7"}},
      {"h\x07.", {"BINGET", "no value 7"}},
      {"p0\n.", {"PUT", "the stack has no value"}},
      {"t.", {"TUPLE", "no mark"}},
      {"N(a.", {"APPEND", "the stack has no value"}},
      {"NNa.", {"APPEND", "None"}},
      {"]NNs.", {"SETITEM", "a list"}},
      {"}(NNNu.", {"SETITEMS", "no value"}},
      {raw("](N\x90."), {"ADDITEMS", "a list"}},
      {"(o.", {"OBJ", "no class"}},
      {"NNR.", {"REDUCE", "no tuple but None"}},
      {"NNb.", {"BUILD", "None"}},
      {raw("NN\x93."), {"STACK_GLOBAL", "no text"}},
      {raw("\x82\x01."), {"byte 0", "EXT1", "outside"}},
      {raw("\x83\x01\0."), {"EXT2", "outside"}},
      {raw("\x84\x01\0\0\0."), {"EXT4", "outside"}},
      {raw("\x97."), {"NEXT_BUFFER", "outside"}},
      {raw("N\x98."), {"byte 1", "READONLY_BUFFER", "outside"}},
  };
  for (Broken broken : all) {
    broken.words.push_back("evil.pkl: pickle");
    expect_user_error([&] { Pickle(broken.bytes, "evil.pkl"); }, broken.words, broken.bytes);
  }
}

TEST(Pickle, LimitsWhatShortPicklesCanMake) {
  const auto expect_limit = [](const std::string& bytes) {
    expect_user_error([&] { Pickle(bytes, "x", 1000); }, {"more than 1000 values"}, bytes);
  };
  expect_limit(std::string(1001, 'N'));
  expect_limit(std::string(1001, '('));
  expect_limit("]" + std::string(1001, '\x94'));
  // Each call would copy a list or a text of some length.
  std::string copies =
      "ctorch\nSize\nq" + raw("\x01") + "(](" + std::string(400, 'N') + "etq" + raw("\x02");
  for (int i = 0; i < 3; ++i) copies += raw("h\x01h\x02R");
  expect_limit(copies + ".");
}

TEST(Pickle, AccessorsNameWhatIsWrong) {
  const Pickle pickle("(dS'a'\nI1\ns.", "x");
  EXPECT_EQ(pickle.root().at("a", "the index").integer("a"), 1);
  expect_user_error([&] { pickle.root().at("b", "the index"); },
                    {"the index has no 'b'", "a dict"});
  expect_user_error([&] { pickle.root().text("a name"); }, {"a name must be a text", "a dict"});
  expect_user_error([&] { pickle.root().at("a", "x").items("sizes"); },
                    {"sizes must be a list", "the integer 1"});
  EXPECT_EQ(quoted_text("a\n\xc3\xa9"), "'a\\x0a\\xc3\\xa9'");
}

TEST(Pickle, SurvivesRandomDamage) {
  std::vector<std::string> pickles;
  std::ifstream lines(fixture("pickles.json"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    for (const std::string hex : row["pickles"]) pickles.push_back(from_hex(hex));
  }
  ASSERT_FALSE(pickles.empty());
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    try {
      const Pickle pickle(mutate(pickles[random() % pickles.size()], random), "x", 100'000);
      EXPECT_FALSE(pickle.root().description().empty());
    } catch (const UserError&) {  // expected of a damaged pickle; anything else is a bug
    }
  }
}

}  // namespace
}  // namespace megatron
