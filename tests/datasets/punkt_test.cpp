// The expected parameters and sentences were made by nltk (tests/parity/make_punkt_fixtures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/datasets/punkt_splitter.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const Json& fixture() {
  static const Json json = read_json(MEGATRON_SOURCE_DIR "/tests/datasets/fixtures/punkt.json");
  return json;
}

PunktParameters parameters(const std::string& name) {
  const Json& json = fixture()[name];
  return {.abbreviations = json["abbreviations"],
          .collocations = json["collocations"],
          .sentence_starters = json["starters"],
          .contexts = json["contexts"]};
}

Words split(const PunktParameters& punkt, bool keep_newlines, const std::string& text) {
  Words sentences;
  for (const std::string_view sentence : PunktSplitter(punkt, keep_newlines).split(text))
    sentences.emplace_back(sentence);
  return sentences;
}

TEST(Punkt, GivesTheSentencesOfNltk) {
  const PunktParameters of_case[] = {parameters("learned"), parameters("given")};
  std::size_t number = 0;
  for (const Json& json : fixture()["cases"]) {
    const PunktParameters& punkt = of_case[number++ % 2];
    const std::string text = json["text"];
    EXPECT_EQ(split(punkt, false, text), json["sentences"].get<Words>()) << text;
    EXPECT_EQ(split(punkt, true, text), json["newlines_kept"].get<Words>()) << text;
  }
  EXPECT_EQ(number, 120);
}

TEST(Punkt, DividesTextAfterAMillionCharacters) {
  const std::string half(999998, 'a');
  const Words sentences = split({}, false, half + "\u00e9\u00e9bc");
  ASSERT_EQ(sentences.size(), 2);
  EXPECT_EQ(sentences[0], half + "\u00e9\u00e9");
  EXPECT_EQ(sentences[1], "bc");
  EXPECT_TRUE(split({}, false, "").empty());
  EXPECT_TRUE(split({}, false, " \n ").empty());
}

void write_files(const TemporaryFolder& folder) {
  folder.write("abbrev_types.txt", "dr\ne.g\n");
  folder.write("collocations.tab", "##number##\tdraft\nj\tbach\n");
  folder.write("sent_starters.txt", "the\n");
  folder.write("ortho_context.tab", "the\t46\nit\t112\n");
}

TEST(Punkt, FilesHoldTheParameters) {
  const TemporaryFolder folder;
  write_files(folder);
  const PunktParameters expected = {.abbreviations = {"dr", "e.g"},
                                    .collocations = {"##number##\tdraft", "j\tbach"},
                                    .sentence_starters = {"the"},
                                    .contexts = {{"the", 46}, {"it", 112}}};
  EXPECT_EQ(load_punkt(folder.path()), expected);
}

TEST(Punkt, NamesBrokenFiles) {
  const TemporaryFolder folder;
  write_files(folder);
  const auto message = [&] { return message_of([&] { load_punkt(folder.path()); }); };
  folder.write("ortho_context.tab", "the\t46\nit\tmany\n");
  EXPECT_THAT(message(), HasSubstr("ortho_context.tab:2: the second column must be a number"));
  folder.write("ortho_context.tab", "the\n");
  EXPECT_THAT(message(), HasSubstr("ortho_context.tab:1: a line must have two columns"));
  folder.write("ortho_context.tab", "\xff\t4\n");
  EXPECT_THAT(message(), HasSubstr("ortho_context.tab is not valid UTF-8"));
}

}  // namespace
}  // namespace megatron
