// Partitions, runs that are killed, full disks and two runs at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <sstream>

#include "datasets/corpus.h"
#include "datasets/preprocess_fixture.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/datasets/prompt_format.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Megatron deals lines to its partitions in turn and merges the partitions in order.
TEST_F(PreprocessTest, DealsDocumentsToPartitions) {
  std::string lines;
  std::vector<std::string> texts;
  for (int i = 0; i < 40000; ++i) {
    texts.push_back(i % 11 == 5 ? std::string() : "d" + std::to_string(i));
    lines += "{\"text\": \"" + texts.back() + "\"}\n";
  }
  input("in.jsonl", lines);
  for (const std::int64_t partitions : {1, 2, 7}) {
    options_.partitions = partitions;
    run();
    std::vector<std::string> expected;
    for (std::int64_t first = 0; first < partitions; ++first) {
      for (auto i = static_cast<std::size_t>(first); i < texts.size();
           i += static_cast<std::size_t>(partitions))
        expected.push_back(texts[i] + (texts[i].empty() ? "" : "$|"));
    }
    EXPECT_TRUE(documents() == expected) << partitions;
    EXPECT_EQ(files(), 3) << partitions;
  }
}

// A run is killed at one of its documents and given again, until one survives: the files equal
// those of a run without interruption.
TEST_F(PreprocessTest, GoesOnAfterAKill) {
  std::string lines;
  for (int i = 0; i < 200000; ++i)
    lines += i % 5000 == 77 ? "{broken\n"
                            : "{\"text\": \"document " + std::to_string(i * 7919 % 10007) + "\"}\n";
  options_.skip_malformed = true;
  options_.checkpoint_interval_s = 0;
  for (const auto& [name, content] :
       {std::pair<std::string, std::string>{"in.jsonl", lines}, {"in.jsonl.gz", gzip(lines)}}) {
    for (const std::int64_t partitions : {1, 3}) {
      options_.partitions = partitions;
      input(name, content);
      const PreprocessSummary whole = run();
      const std::string bin = test::read_text_file(folder_ / "out_text_document.bin"),
                        idx = test::read_text_file(folder_ / "out_text_document.idx");
      fs::remove(folder_ / "out_text_document.bin");
      fs::remove(folder_ / "out_text_document.idx");
      for (const int last : {60000, 60000, 60000}) run_and_die_after(last);
      EXPECT_TRUE(fs::exists(folder_ / "out.partial.json"));
      std::ostringstream log;
      options_.log = &log;
      const PreprocessSummary summary = run();
      options_.log = nullptr;
      EXPECT_THAT(log.str(), HasSubstr("note: continues after the "));
      EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.bin") == bin);
      EXPECT_TRUE(test::read_text_file(folder_ / "out_text_document.idx") == idx);
      EXPECT_EQ(summary.text_bytes, whole.text_bytes);
      EXPECT_EQ(summary.malformed_documents, 40);
      EXPECT_EQ(summary.first_malformed, whole.first_malformed);
      EXPECT_EQ(files(), name == "in.jsonl" ? 3 : 4) << "leftovers";
    }
  }
}

// As after a kill in the middle of the renames of several keys.
TEST_F(PreprocessTest, StartsAnewAfterAKillThatLeftOnlyAPartOfTheFiles) {
  std::string lines;
  for (int i = 0; i < 100000; ++i)
    lines += "{\"text\": \"d" + std::to_string(i) + "\", \"title\": \"t\"}\n";
  input("in.jsonl", lines);
  options_.json_keys = {"text", "title"};
  options_.checkpoint_interval_s = 0;
  for (const char* lost : {".bin", ".lengths", ".documents"}) {
    run_and_die_after(160000);
    ASSERT_TRUE(fs::remove(folder_ / (std::string("out_text_document.partial.0") + lost)));
    std::ostringstream log;
    options_.log = &log;
    run();
    options_.log = nullptr;
    EXPECT_THAT(log.str(), HasSubstr("left only a part of its files: starts anew"));
    EXPECT_EQ(documents().size(), 100000U);
    EXPECT_EQ(files(), 5) << "leftovers";
  }
}

TEST_F(PreprocessTest, RefusesAnotherRunOfThePrefixWithOtherKeys) {
  input("in.jsonl", "{\"text\": \"a\", \"title\": \"b\"}\n");
  std::string message;
  preprocess(options_, [&](std::string_view text) {
    PreprocessOptions other = options_;
    other.json_keys = {"title"};
    message = message_of([&] {
      preprocess(other, [&](std::string_view other_text) { return bytes_of(other_text); });
    });
    return bytes_of(text);
  });
  EXPECT_THAT(message, HasSubstr("another process is writing the dataset"));
}

// Messages that are cut for the list of malformed lines stay UTF-8, which the checkpoint needs.
TEST_F(PreprocessTest, KeepsMessagesOfMalformedLinesInItsCheckpoint) {
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    std::string text(static_cast<std::size_t>(i), 'x');
    for (int k = 0; k < 60; ++k) text += "中";
    lines += "{\"messages\": \"" + text + "\"}\n";
  }
  TokenizerConfig config;
  config.tokenizer_model =
      folder_.write("tok.json", R"({"model":{"type":"WordLevel","unk_token":"<unk>",)"
                                R"("vocab":{"<unk>":0,"a":1}}})");
  input("in.jsonl", lines + "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n");
  options_.append_eod = false;
  options_.json_keys = {"messages"};
  options_.conversations = std::make_shared<const PromptFormat>("identity", make_tokenizer(config));
  options_.skip_malformed = true;
  options_.checkpoint_interval_s = 0;
  EXPECT_EQ(run().malformed_documents, 100);
}

TEST_F(PreprocessTest, StartsAnewAfterAKillWhenTheJobDiffers) {
  std::string lines;
  for (int i = 0; i < 200000; ++i) lines += "{\"text\": \"document\"}\n";
  input("in.jsonl", lines);
  options_.checkpoint_interval_s = 0;
  run_and_die_after(150000);
  test::write_text_file(folder_ / "out_text_document.tmp.4711.bin", "of an older version");
  input("in.jsonl", "{\"text\": \"other\"}\n");
  run();
  EXPECT_THAT(documents(), ElementsAre("other$|"));
  EXPECT_EQ(files(), 3);
}

// A limit on the size of files has the effect of a full disk: a write fails half-way.
TEST_F(PreprocessTest, LeavesNothingWhenTheDiskIsFull) {
  std::string lines;
  for (int i = 0; i < 100000; ++i) lines += "{\"text\": \"document\"}\n";
  input("in.jsonl", lines);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t bytes : {100000, 1000000, 2000000}) {
    const rlimit small{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string message = error();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(message, HasSubstr("File too large")) << bytes;
    EXPECT_EQ(files(), 1) << bytes;
  }
  ::signal(SIGXFSZ, handler);
}

TEST_F(PreprocessTest, RefusesADatasetThatAnotherProcessWrites) {
  input("in.jsonl", "{\"text\": \"a\"}\n");
  {
    const IndexedDatasetBuilder other(folder_ / "out_text_document", TokenDtype::uint16);
    EXPECT_THAT(error(), HasSubstr("another process is writing the dataset"));
  }
  run();
  EXPECT_THAT(documents(), ElementsAre("a$|"));
}

}  // namespace
}  // namespace megatron
