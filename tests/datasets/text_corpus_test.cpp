#include "megatron/datasets/text_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextCorpusTest : public ::testing::Test {
 protected:
  /// Returns the texts in order, each with its line.
  std::vector<std::string> read(const TextCorpusOptions& options) {
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, std::int64_t>, std::string> texts;
    summary_ = read_text_corpus(options, [&](const CorpusText& text) {
      const std::lock_guard lock(mutex);
      auto& found = texts[{text.chunk_number, text.line}];
      found += std::to_string(text.line) + ":" + std::string(text.text);
    });
    std::vector<std::string> result;
    for (const auto& [place, text] : texts) result.push_back(text);
    return result;
  }

  TemporaryFolder folder_;
  TextCorpusSummary summary_;
};

TEST_F(TextCorpusTest, ReadsLinesWithTheirEnds) {
  const std::string file = folder_.write("in.txt", "a b\r\n\n  c");
  EXPECT_THAT(read({.inputs = {file}}), ElementsAre("1:a b\r\n", "2:\n", "3:  c"));
  EXPECT_EQ(summary_.documents, 3);
  EXPECT_EQ(summary_.text_bytes, 9u);
  EXPECT_THAT(read({.inputs = {file}, .text_documents = DocumentKind::line}),
              ElementsAre("1:a b", "3:  c"));
  EXPECT_THAT(read({.inputs = {file}, .text_documents = DocumentKind::file}),
              ElementsAre("1:a b\r\n\n  c"));
}

TEST_F(TextCorpusTest, ReadsFieldsOfJsonLines) {
  const std::string file = folder_.write("in.jsonl",
                                         "{\"t\":\"a\",\"u\":[\"b\",\"c\"]}\n\n"
                                         "{\"t\":\"d\",\"u\":\"\"}\n");
  EXPECT_THAT(read({.inputs = {file}, .json_keys = {"t", "u"}, .workers = 2}),
              ElementsAre("1:a1:b1:c", "3:d3:"));
  EXPECT_THAT(read({.inputs = {file}, .format = InputFormat::text}).size(), 3u);
}

TEST_F(TextCorpusTest, StopsAtWhatIsNoTextOrSkipsIt) {
  const std::string file = folder_.write("in.txt",
                                         "fine\nb\xff"
                                         "d\nlast\n");
  EXPECT_THAT(message_of([&] { read({.inputs = {file}}); }),
              HasSubstr("in.txt:2: the text is not valid UTF-8"));
  EXPECT_THAT(read({.inputs = {file}, .skip_malformed = true}),
              ElementsAre("1:fine\n", "3:last\n"));
  EXPECT_EQ(summary_.malformed_documents, 1);
  EXPECT_THAT(summary_.first_malformed, HasSubstr("in.txt:2"));
  const std::string code = folder_.write("in.py", "import os\n");
  EXPECT_THAT(message_of([&] { read({.inputs = {code}}); }), HasSubstr("--input-format text"));
  EXPECT_THAT(message_of([&] { read({.inputs = {"/nowhere"}, .flag = "--text"}); }),
              HasSubstr("--text /nowhere matches no file"));
}

TEST_F(TextCorpusTest, NumbersChunksOfAllFiles) {
  const std::string lines(3 << 20, '\n');
  const std::string first = folder_.write("a.txt", lines), second = folder_.write("b.txt", "x\n");
  std::mutex mutex;
  std::uint64_t last_chunk = 0, done = 0;
  read_text_corpus({.inputs = {first, second},
                    .workers = 3,
                    .progress =
                        [&](auto bytes, auto total) {
                          EXPECT_GE(bytes, done);
                          EXPECT_EQ(total, lines.size() + 2);
                          done = bytes;
                        }},
                   [&](const CorpusText& text) {
                     const std::lock_guard lock(mutex);
                     EXPECT_LT(text.worker, 3u);
                     if (text.text == "x\n") last_chunk = text.chunk_number;
                   });
  EXPECT_GE(last_chunk, 3u);
  EXPECT_EQ(done, lines.size() + 2);
}

}  // namespace
}  // namespace megatron
