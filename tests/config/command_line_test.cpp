// Tests FieldTable and the command line: every type, every spelling and every mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/field_table.h"
#include "megatron/config/help.h"
#include "support/message_of.h"

namespace megatron {

enum class Shape { round, flat };
template <>
struct EnumNames<Shape> {
  static constexpr std::array<std::pair<std::string_view, Shape>, 2> value{
      {{"round", Shape::round}, {"flat", Shape::flat}}};
};

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Inner {
  double rate = 0.5;
};

struct Options {
  std::int64_t count = 3;
  std::string input;
  bool verbose = false, fast = true;
  Shape shape = Shape::round;
  std::vector<Shape> shapes;
  std::optional<std::int64_t> limit;
  std::vector<std::string> path, prompt, rest;
  std::vector<std::int64_t> skip;
  std::optional<IntegerPair> window;
  Inner inner;
  std::string what;
};

const FieldTable<Options>& options_table() {
  static const FieldTable<Options> table = [] {
    FieldTable<Inner> inner;
    inner.group("Inner").field("rate", &Inner::rate, "a rate").above(0).below(1);
    FieldTable<Options> t;
    t.about("Does a thing.").group("Main");
    t.field("count", &Options::count, "how many").between(1, 10).alias("old-count");
    t.field("input_file", &Options::input, "what to read").required().value_name("FILE");
    t.field("verbose", &Options::verbose, "say more");
    t.field("fast", &Options::fast, "be slow").alias("quick");
    t.field("shape", &Options::shape, "its shape");
    t.field("shapes", &Options::shapes, "its shapes");
    t.field("limit", &Options::limit, "a limit");
    t.field("path", &Options::path, "paths");
    t.field("prompt", &Options::prompt, "prompts").repeatable();
    t.field("skip", &Options::skip, "numbers to skip");
    t.field("window", &Options::window, "left and right");
    t.include(&Options::inner, inner);
    t.field("what", &Options::what, "what to do").positional();
    t.field("rest", &Options::rest, "the rest").positional();
    return t;
  }();
  return table;
}

Options parse(std::vector<std::string> args) {
  args.insert(args.begin(), {"--input-file", "x"});
  Options options;
  parse_command_line(options_table(), args, options, "example");
  return options;
}

std::string mistake(std::vector<std::string> args) {
  Options options;
  args.insert(args.begin(), {"--input-file", "x"});
  return message_of([&] { parse_command_line(options_table(), args, options, "example"); });
}

TEST(CommandLine, ReadsEveryType) {
  const Options o = parse({"do",      "--count=7", "--verbose", "--no-fast",    "--shape", "flat",
                           "--limit", "-5",        "--path",    "30",           "a",       "70",
                           "b",       "--prompt",  "one",       "--prompt=two", "--skip",  "1",
                           "2,3",     "--window",  "127,0",     "--rate",       "1e-3"});
  EXPECT_EQ(o.count, 7);
  EXPECT_EQ(o.input, "x");
  EXPECT_TRUE(o.verbose && !o.fast);
  EXPECT_EQ(o.shape, Shape::flat);
  EXPECT_EQ(o.limit, -5);
  EXPECT_THAT(o.path, ElementsAre("30", "a", "70", "b"));
  EXPECT_THAT(o.prompt, ElementsAre("one", "two"));
  EXPECT_THAT(o.skip, ElementsAre(1, 2, 3));
  EXPECT_EQ(o.window, (IntegerPair{127, 0}));
  EXPECT_EQ(o.inner.rate, 1e-3);
  EXPECT_EQ(o.what, "do");
}

TEST(CommandLine, OtherSpellings) {
  EXPECT_EQ(parse({"--old-count", "2"}).count, 2);
  EXPECT_EQ(parse({"--count", "1_0"}).count, 10);
  EXPECT_EQ(parse({"--count", " +1 "}).count, 1);
  EXPECT_EQ(parse({"--limit", "220_000_000"}).limit, 220000000);
  EXPECT_EQ(parse({"--rate", "1_0.5e-0_2"}).inner.rate, 0.105);
  EXPECT_THAT(parse({"--shapes", "[round, flat]"}).shapes, ElementsAre(Shape::round, Shape::flat));
  EXPECT_FALSE(parse({"--disable-fast"}).fast);
  EXPECT_FALSE(parse({"--fast=false"}).fast);
  EXPECT_FALSE(parse({"--verbose=0"}).verbose);
  EXPECT_EQ(parse({"--window", "-1", "0"}).window, (IntegerPair{-1, 0}));
  EXPECT_EQ(parse({"--window", "(3, 4)"}).window, (IntegerPair{3, 4}));
  EXPECT_THAT(parse({"--skip", "[1, 2]"}).skip, ElementsAre(1, 2));
  EXPECT_EQ(parse({"--limit", "3", "--limit", "None"}).limit, std::nullopt);
  EXPECT_EQ(parse({"--count", "2", "--count", "4"}).count, 4);
  EXPECT_THAT(parse({"do", "--", "--a", "b"}).rest, ElementsAre("--a", "b"));
  EXPECT_THAT(parse({"--prompt", "-- is a dash"}).prompt, ElementsAre("-- is a dash"));
}

/// argparse looks for a known flag before "=", and takes other words with blanks for values.
TEST(CommandLine, ValuesAfterEqualsMayHaveBlanks) {
  const Options o = parse({"--path", "a", "--prompt=hello world", "--skip=1, 2, 3", "--path", "b",
                           "--window=(3, 4)", "--prompt", "--other=a b", "--prompt", "-x = 1"});
  EXPECT_THAT(o.prompt, ElementsAre("hello world", "--other=a b", "-x = 1"));
  EXPECT_THAT(o.skip, ElementsAre(1, 2, 3));
  EXPECT_THAT(o.path, ElementsAre("b"));
  EXPECT_EQ(o.window, (IntegerPair{3, 4}));
  EXPECT_THAT(mistake({"--prompt", "--count=3 apples"}), HasSubstr("--prompt: expects a value"));
  EXPECT_THAT(mistake({"--promt=hello world"}),
              HasSubstr("--promt: unknown flag\n  fix: did you mean --prompt?"));
}

TEST(CommandLine, NamesEachMistake) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"--count", "x"}, "--count: must be an integer, got 'x'"},
      {{"--count", "1.5"}, "must be an integer"},
      {{"--count", "1__0"}, "must be an integer"},
      {{"--count", " "}, "must be an integer"},
      {{"--count", "99999999999999999999"}, "must fit in 64 bits"},
      {{"--count", "0"}, "must be at least 1, got 0"},
      {{"--count", "11"}, "must be at most 10, got 11"},
      {{"--count"}, "--count: expects a value"},
      {{"--count", "--verbose"}, "--count: expects a value\n  fix: write --count N"},
      {{"--count", "-x"},
       "--count: expects a value, and -x reads as a flag\n  fix: write --count=-x"},
      {{"--count", ""}, "must be an integer, got ''"},
      {{"--rate", "0"}, "must be above 0, got 0"},
      {{"--rate", "1"}, "must be below 1, got 1"},
      {{"--rate", "nan"}, "must be a number"},
      {{"--rate", "1e999"}, "that a double can hold"},
      {{"--shape", "flt"}, "must be one of round, flat, got 'flt'\n  fix: did you mean 'flat'?"},
      {{"--verbose=maybe"}, "must be true or false, got 'maybe'"},
      {{"--no-fast=maybe"}, "must be true or false, got 'maybe'"},
      {{"--window", "1"}, "takes two integers"},
      {{"--cuont", "3"}, "--cuont: unknown flag\n  fix: did you mean --count?"},
      {{"--coun", "3"}, "unknown flag\n  fix: did you mean --count?"},
      {{"-c", "3"}, "-c: unknown flag"},
      {{"--input_file", "3"}, "did you mean --input-file?"},
  };
  for (const auto& [args, expected] : table)
    EXPECT_THAT(mistake(args), HasSubstr(expected)) << args[0];
}

TEST(CommandLine, ShowsAllMistakesTogether) {
  Options options;
  const std::vector<std::string> args{"--count", "0", "--nonsense", "--shape", "square"};
  try {
    parse_command_line(options_table(), args, options, "example");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(
        error.what(),
        ::testing::AllOf(HasSubstr("4 problems"), HasSubstr("--count"), HasSubstr("--nonsense"),
                         HasSubstr("--shape"),
                         HasSubstr("--input-file: is required\n     fix: add --input-file FILE")));
  }
}

TEST(CommandLine, RecordsOrigins) {
  Options options;
  const std::vector<std::string> args{"--input-file", "x", "--no-fast"};
  const ParseResult parsed = parse_command_line(options_table(), args, options, "example");
  EXPECT_TRUE(parsed.is_set("fast"));
  EXPECT_FALSE(parsed.is_set("count"));
  EXPECT_EQ(parsed.origin("fast").where, "--no-fast");
  EXPECT_EQ(parsed.origin("count").kind, Origin::Kind::default_value);
}

TEST(CommandLine, FlagsHavePrecedenceOverTheEnvironment) {
  ::setenv("MEGATRON_COUNT", "7", 1);
  ::setenv("MEGATRON_LIMIT", "8", 1);
  ::setenv("MEGATRON_COUNTS", "9", 1);  // which may be a setting of another command
  Options options;
  const std::vector<std::string> args{"--input-file", "x", "--count", "5"};
  const ParseResult parsed = parse_command_line(options_table(), args, options, "example");
  for (const char* name : {"MEGATRON_COUNT", "MEGATRON_LIMIT", "MEGATRON_COUNTS"}) ::unsetenv(name);
  EXPECT_EQ(options.count, 5);
  EXPECT_EQ(options.limit, 8);
  EXPECT_EQ(parsed.origin("limit").where, "MEGATRON_LIMIT");
  EXPECT_THAT(
      notes_text(parsed.notes),
      HasSubstr("note: MEGATRON_COUNTS: names no setting of example and is ignored; did you "
                "mean MEGATRON_COUNT?"));
}

struct Layer {
  std::int64_t width = 0, depth = 2;
};

TEST(FieldTable, NoneStandsForAValue) {
  FieldTable<Layer> t;
  t.field("width", &Layer::width, "a width").none_is("0").between(0, 8);
  const Field& width = t.set().fields.front();
  EXPECT_THAT(width.default_values, ElementsAre());
  Layer layer;
  assign(width, &layer, std::vector<std::string>{"4"});
  EXPECT_THAT(width.get(&layer), ElementsAre("4"));
  EXPECT_THROW(assign(width, &layer, std::vector<std::string>{"9"}), FieldError);
  assign(width, &layer, std::vector<std::string>{"None"});
  EXPECT_EQ(layer.width, 0);
  EXPECT_THAT(width.get(&layer), ElementsAre());
  copy_values(width, {"3"}, &layer);
  EXPECT_EQ(layer.width, 3);
  copy_values(width, {}, &layer);
  EXPECT_EQ(layer.width, 0);
}

TEST(FieldTable, FollowingFieldsShareProperties) {
  FieldTable<Layer> inner;
  inner.following().breaks_resume("why").left_out_of_check();
  inner.field("width", &Layer::width, "a width");
  inner.field("depth", &Layer::depth, "a depth").on_resume("applies").kept_in_check();
  struct Model {
    Layer layer;
  };
  FieldTable<Model> t;
  t.include(&Model::layer, inner);
  const Field &width = t.set().fields[0], &depth = t.set().fields[1];
  EXPECT_EQ(width.on_resume.kind, ResumeMeaning::Kind::breaking);
  EXPECT_EQ(width.on_resume.consequence, "why");
  EXPECT_EQ(width.left_out_of_check, "");
  EXPECT_EQ(depth.on_resume.kind, ResumeMeaning::Kind::plain);
  EXPECT_EQ(depth.on_resume.consequence, "applies");
  EXPECT_FALSE(depth.left_out_of_check);
}

TEST(Help, ShowsGroupsDefaultsAndRanges) {
  const std::string text = help_text(options_table().set(), "example", 80);
  EXPECT_THAT(text,
              HasSubstr("usage: megatron example [WHAT] [REST...] --input-file FILE [flags]"));
  EXPECT_THAT(
      text,
      HasSubstr("--count N                       how many (default: 3; at least 1, at most 10;"));
  EXPECT_THAT(text, HasSubstr("--no-fast"));
  EXPECT_THAT(text, Not(HasSubstr("--quick"))) << "which does not mean --no-fast";
  EXPECT_THAT(text, HasSubstr("\nInner:\n"));
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 80u);
}

TEST(Help, IsThrownByTheParser) {
  Options options;
  EXPECT_THROW(
      parse_command_line(options_table(), std::vector<std::string>{"--help"}, options, "example"),
      HelpRequested);
}

TEST(NearestName, FindsTyposAndPrefixes) {
  const std::vector<std::string> names{"--num-layers", "--num-attention-heads", "--lr"};
  EXPECT_EQ(nearest_name("--num-layer", names), "--num-layers");
  EXPECT_EQ(nearest_name("--nmu-layers", names), "--num-layers");
  EXPECT_EQ(nearest_name("--num-att", names), "--num-attention-heads");
  EXPECT_EQ(nearest_name("--something-else", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

}  // namespace
}  // namespace megatron
