// Which documents cleaning leaves out: rules, duplicates, any number of threads, and kills.
// tests/parity/cleaning_parity.py compares the rules with datatrove.
#include "megatron/datasets/cleaning/document_cleaner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/preprocess_fixture.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string broken_rule(const DocumentRules& rules, std::string_view text) {
  return std::string(DocumentFilter(rules).broken_rule(text));
}

TEST(DocumentFilter, AppliesBoundsInclusively) {
  DocumentRules rules;
  rules.min_doc_chars = 3;
  rules.max_doc_chars = 4;
  EXPECT_EQ(broken_rule(rules, "ab"), "min_doc_chars");
  EXPECT_EQ(broken_rule(rules, "abc"), "");
  EXPECT_EQ(broken_rule(rules, "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"), "");  // four of two bytes
  EXPECT_EQ(broken_rule(rules, "abcde"), "max_doc_chars");
}

TEST(DocumentFilter, MeasuresByHand) {
  const TextMeasures text("# one two\n- three 44 ...\none two");
  EXPECT_EQ(text.words(), 6);  // not '#', '-' and "..."
  EXPECT_EQ(text.characters(), 32);
  EXPECT_DOUBLE_EQ(text.mean_word_length(), (3 + 3 + 5 + 2 + 3 + 3) / 6.0);
  EXPECT_DOUBLE_EQ(text.digit_ratio(), 2 / 32.0);
  EXPECT_DOUBLE_EQ(text.symbol_ratio(), 5 / 32.0);
  EXPECT_DOUBLE_EQ(text.symbol_word_ratio(), 1 / 9.0);
  EXPECT_DOUBLE_EQ(text.bullet_line_ratio(), 1 / 3.0);
  EXPECT_DOUBLE_EQ(text.ellipsis_line_ratio(), 1 / 3.0);
  EXPECT_DOUBLE_EQ(text.alpha_word_ratio(), 5 / 9.0);
  EXPECT_DOUBLE_EQ(text.top_ngram_ratio(2), 14 / 32.0);
  EXPECT_DOUBLE_EQ(text.duplicate_ngram_ratio(2), 6 / 32.0);
  EXPECT_DOUBLE_EQ(text.duplicate_ngram_ratio(3), 0);
  EXPECT_DOUBLE_EQ(TextMeasures("a\n\nb\nb\n\na").duplicate_paragraph_ratio(), 1 / 3.0);
  EXPECT_DOUBLE_EQ(TextMeasures("a\n\nb\nb\n\na").duplicate_line_ratio(), 2 / 4.0);
  EXPECT_EQ(TextMeasures("").duplicate_line_ratio(), 0);
}

TEST(DocumentFilter, ComparesScriptsOfLetters) {
  DocumentRules rules;
  rules.scripts = {"Latin"};
  rules.min_script_ratio = 0.5;
  EXPECT_EQ(broken_rule(rules, "ab \xd0\xb1\xd0\xb1 12"), "");
  EXPECT_EQ(broken_rule(rules, "ab \xd0\xb1\xd0\xb1\xd0\xb1"), "scripts");
  EXPECT_EQ(broken_rule(rules, "12 !?"), "");
  rules.scripts = {"Latin", "Cyrillic"};
  EXPECT_EQ(broken_rule(rules, "ab \xd0\xb1\xd0\xb1\xd0\xb1"), "");
  rules.scripts = {"Klingon"};
  EXPECT_THAT(message_of([&] { DocumentFilter filter(rules); }), HasSubstr("--scripts Klingon"));
}

TEST(DocumentFilter, FindsForbiddenTextInAnyCase) {
  DocumentRules rules;
  rules.forbidden_text = {"lorem ipsum", "{"};
  EXPECT_EQ(broken_rule(rules, "a Lorem IPSUM b"), "forbidden_text");
  EXPECT_EQ(broken_rule(rules, "f() {"), "forbidden_text");
  rules.forbidden_text = {"\u00c4RGER"};
  EXPECT_EQ(broken_rule(rules, "das ist \u00e4rgerlich"), "forbidden_text");
  EXPECT_EQ(broken_rule(rules, "das ist arg"), "");
  EXPECT_EQ(broken_rule(rules, "lorem  ipsum"), "");
}

// Texts that share a key of 64 bits are all found, in the order in which they were added, while the
// table grows.
TEST(KeyTable, KeepsAllDocumentsOfAKeyInOrder) {
  KeyTable table;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    table.add(~std::uint64_t{0} - i % 3, 2 * i);
    table.add(i * 0x9e3779b97f4a7c15u, 2 * i + 1);
  }
  std::vector<std::uint32_t> found, expected;
  table.find(~std::uint64_t{0} - 1, [&](std::uint32_t document) {
    found.push_back(document);
    return false;
  });
  for (std::uint32_t i = 1; i < 3000; i += 3) expected.push_back(2 * i);
  EXPECT_EQ(found, expected);
  for (std::uint32_t i = 0; i < 3000; ++i) {
    std::uint32_t document = 0;
    table.find(i * 0x9e3779b97f4a7c15u, [&](std::uint32_t d) { return document = d, true; });
    EXPECT_EQ(document, 2 * i + 1);
  }
}

class CleaningTest : public PreprocessTest {
 protected:
  /// A line of a document, whose words are w0 … w29 with one replaced: 5 of 26 shingles change.
  static std::string line(int base, int changed = -1) {
    std::string text;
    for (int i = 0; i < 30; ++i)
      text += (i == 0 ? "" : " ") + (i == changed ? "other" + std::to_string(base)
                                                  : "w" + std::to_string(base * 100 + i));
    return "{\"text\": \"" + text + "\"}\n";
  }
  CleaningReport clean(const std::string& lines) {
    input("in.jsonl", lines);
    return run().cleaning;
  }
  std::vector<std::string> removed() {
    std::vector<std::string> sources;
    std::istringstream lines(test::read_text_file(folder_ / "removed.jsonl"));
    for (std::string line; std::getline(lines, line);)
      sources.push_back(line.substr(line.rfind(':', line.find("\",")) + 1,
                                    line.find("\",") - line.rfind(':', line.find("\",")) - 1));
    return sources;
  }
};

TEST_F(CleaningTest, KeepsTheFirstOfEqualTexts) {
  options_.cleaning.duplicates.exact = true;
  const CleaningReport report = clean(
      "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"a\"}\n{\"text\": \"A\"}\n"
      "{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
  EXPECT_THAT(documents(), ElementsAre("a$|", "b$|", "A$|", "c$|"));
  EXPECT_EQ(report.documents, 6);
  EXPECT_EQ(report.bytes, 6u);
  EXPECT_THAT(report.removed,
              ElementsAre(Pair("exact_dedup",
                               CleaningReport::Removed{.documents = 2,
                                                       .bytes = 2,
                                                       .examples = {folder_ / "in.jsonl:3: a",
                                                                    folder_ / "in.jsonl:5: b"}})));
  EXPECT_EQ(files(), 3);
}

TEST_F(CleaningTest, KeepsTheFirstOfNearDuplicates) {
  options_.cleaning.duplicates.near = MinHashOptions{.bands = 100, .rows = 3};
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  const CleaningReport report = clean(line(1) + line(2) + line(1, 15) + line(2, 29) + line(3));
  EXPECT_THAT(removed(), ElementsAre("3", "4"));
  EXPECT_EQ(documents().size(), 3u);
  EXPECT_EQ(report.removed.at("minhash_dedup").documents, 2);
  EXPECT_THAT(test::read_text_file(folder_ / "removed.jsonl"), HasSubstr("\"duplicate_of\":1"));
}

TEST_F(CleaningTest, ReplacesNoFileThatTheRunUses) {
  options_.cleaning.duplicates.exact = true;
  input("in.jsonl", line(1) + line(1));
  const fs::path link = folder_ / "link", fifo = folder_ / "fifo";
  fs::create_symlink("elsewhere", link);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  options_.encoder_files = {folder_.write("tokenizer.json", "{}")};
  for (const char* name : {"in.jsonl", "./in.jsonl", "out_text_document.bin",
                           "out_text_document.idx", "tokenizer.json", "link", "fifo"}) {
    options_.cleaning.removed_file = folder_ / name;
    EXPECT_THAT(error(), HasSubstr("which it would replace")) << name;
  }
  EXPECT_EQ(test::read_text_file(folder_ / "in.jsonl"), line(1) + line(1));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::is_fifo(fifo));
}

TEST_F(CleaningTest, SharesItsFileOfRemovedDocumentsWithNoOtherRun) {
  options_.cleaning.duplicates.exact = true;
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  input("in.jsonl", line(1));
  std::string message;
  preprocess(options_, [&](std::string_view text) {
    PreprocessOptions other = options_;
    other.output_prefix = folder_ / "other";
    message = message_of([&] { preprocess(other, bytes_of); });
    return bytes_of(text);
  });
  EXPECT_THAT(message, HasSubstr("another process is writing --removed-file"));
}

// One changed word in the middle leaves 21 of 31 shingles: a similarity of 0.68; at the end, 25 of
// 27: 0.93.
TEST_F(CleaningTest, ComparesTheEstimateWithTheThreshold) {
  options_.cleaning.duplicates = {
      .exact = false, .near = MinHashOptions{.bands = 200, .rows = 2}, .threshold = 0.8};
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  clean(line(1) + line(1, 15) + line(1, 29));
  EXPECT_THAT(removed(), ElementsAre("3"));
}

// The third text resembles the second (24 of 28 shingles) but not the first (22 of 30), and the
// second goes: a chain of changes does not remove what resembles nothing that stays.
TEST_F(CleaningTest, ComparesWithDocumentsThatStay) {
  options_.cleaning.duplicates = {
      .exact = false, .near = MinHashOptions{.bands = 500, .rows = 2}, .threshold = 0.8};
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  std::string middle;
  for (int i = 2; i < 28; ++i) middle += " w" + std::to_string(i);
  clean("{\"text\": \"a b" + middle + " c d\"}\n{\"text\": \"a b" + middle +
        " x x\"}\n{\"text\": \"y y" + middle + " x x\"}\n");
  EXPECT_THAT(removed(), ElementsAre("2"));
}

std::string many_lines() {
  std::string lines;
  for (int i = 0; i < 120000; ++i)
    lines += i % 5000 == 77 ? "{broken\n"
                            : "{\"text\": \"a document that has the number " +
                                  std::to_string(i * 7919LL % 40009) + " of many\"}\n";
  return lines;
}

TEST_F(CleaningTest, DoesNotDependOnThreadsOrPartitions) {
  options_.skip_malformed = true;
  options_.cleaning.duplicates = {
      .exact = true, .near = MinHashOptions{.ngram = 2, .bands = 4, .rows = 4}, .threshold = 0.9};
  options_.cleaning.rules.min_doc_chars = 43;
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  options_.workers = 1;
  const CleaningReport report = clean(many_lines());
  const std::string bin = test::read_text_file(folder_ / "out_text_document.bin"),
                    removed = test::read_text_file(folder_ / "removed.jsonl");
  EXPECT_EQ(report.removed.size(), 3u);
  options_.workers = 5;
  EXPECT_EQ(run().cleaning, report);
  EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.bin") == bin);
  EXPECT_TRUE(test::read_text_file(folder_ / "removed.jsonl") == removed);
  options_.partitions = 3;
  EXPECT_EQ(run().cleaning, report);
  EXPECT_TRUE(test::read_text_file(folder_ / "removed.jsonl") == removed);
}

// After each kill the run knows what it had kept.
TEST_F(CleaningTest, GoesOnAfterAKill) {
  options_.skip_malformed = true;
  options_.checkpoint_interval_s = 0;
  options_.cleaning.duplicates = {
      .exact = true, .near = MinHashOptions{.ngram = 2, .bands = 3, .rows = 5}, .threshold = 0.9};
  options_.cleaning.rules.min_doc_chars = 43;
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  const CleaningReport report = clean(many_lines());
  const std::string bin = test::read_text_file(folder_ / "out_text_document.bin"),
                    removed = test::read_text_file(folder_ / "removed.jsonl");
  for (const char* name : {"out_text_document.bin", "out_text_document.idx", "removed.jsonl"})
    fs::remove(folder_ / name);
  for (const int last : {50000, 30000}) run_and_die_after(last);
  EXPECT_TRUE(fs::exists(folder_ / "out.partial.kept"));
  EXPECT_EQ(run().cleaning, report);
  EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.bin") == bin);
  EXPECT_TRUE(test::read_text_file(folder_ / "removed.jsonl") == removed);
  EXPECT_EQ(files(), 4) << "leftovers";
}

TEST_F(CleaningTest, LeavesNothingWhenNothingStays) {
  options_.cleaning.rules.min_doc_chars = 10;
  options_.cleaning.removed_file = folder_ / "removed.jsonl";
  input("in.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(error(), HasSubstr("cleaning removed 1 of 1 documents"));
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace megatron
