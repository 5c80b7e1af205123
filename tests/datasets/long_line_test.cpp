// Preprocesses a line of many megabytes and the short one behind it. MEGATRON_TEST_LINE_BYTES sets
// the size of the line (`make test-nightly`: 1 GB).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/preprocess.h"
#include "megatron/tokenizers/tokenizer.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

/// The long line repeats this text, which the pre-tokenizer divides at its ends.
constexpr std::string_view kText = " The quick \"brown\" fox jumps 1234 times, naïvely.";
constexpr std::string_view kTextInJson =
    R"( The quick \"brown\" fox jumps 1234 times, na\u00efvely.)";
constexpr std::string_view kLast = "And the line after it.";

class LongLines : public ::testing::TestWithParam<const char*> {
 protected:
  /// Writes `head`, as many copies of `text` as a line has, and `tail`.
  void write_input(std::string_view head, std::string_view text, std::string_view tail) const {
    std::ofstream file(options_.inputs[0], std::ios::binary);
    file << head;
    for (std::int64_t i = 0; i < num_copies_; ++i) file << text;
    file << tail;
    ASSERT_TRUE(file.flush());
  }

  static std::int64_t line_bytes() {
    const char* bytes = std::getenv("MEGATRON_TEST_LINE_BYTES");
    return bytes != nullptr ? std::atoll(bytes) : 5'000'000;
  }

  TemporaryFolder folder_;
  std::int64_t num_copies_ = line_bytes() / static_cast<std::int64_t>(kText.size());
  PreprocessOptions options_{.inputs = {folder_ / (std::string("in.") + GetParam())},
                             .output_prefix = folder_ / "out",
                             .append_eod = true,
                             .workers = 2};
};

TEST_P(LongLines, AreOneDocument) {
  TokenizerConfig config;
  config.tokenizer_model = MEGATRON_SOURCE_DIR "/tests/tokenizers/fixtures/gpt2.json";
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(config);
  options_.eod = tokenizer->eod();
  options_.vocab_size = tokenizer->vocab_size();
  if (std::string_view(GetParam()) == "txt") {
    write_input("", kText, "\n\n" + std::string(kLast) + "\n");
  } else {
    write_input(R"({"text":")", kTextInJson, "\"}\n{\"text\":\"" + std::string(kLast) + "\"}\n");
  }
  const PreprocessSummary summary =
      preprocess(options_, [&](std::string_view text) { return tokenizer->encode(text); });
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::cout << "a line of " << num_copies_ * static_cast<std::int64_t>(kText.size())
            << " bytes: " << summary.seconds << " s, at most " << usage.ru_maxrss / 1024
            << " MiB\n";

  const IndexedDataset dataset(folder_ / "out_text_document");
  Ids copy = tokenizer->encode(kText), last = tokenizer->encode(kLast);
  last.push_back(tokenizer->eod());
  const std::int64_t length = num_copies_ * static_cast<std::int64_t>(copy.size()) + 1;
  ASSERT_EQ(dataset.num_documents(), 2);
  ASSERT_EQ(dataset.num_sequences(), 2);
  ASSERT_EQ(dataset.sequence_lengths()[0], length);
  std::vector<std::int64_t> ids(copy.size());
  for (std::int64_t i = 0; i < num_copies_; ++i) {
    dataset.read(0, i * static_cast<std::int64_t>(copy.size()), ids);
    ASSERT_TRUE(std::ranges::equal(ids, copy)) << "copy " << i;
  }
  ids.resize(1);
  dataset.read(0, length - 1, ids);
  EXPECT_THAT(ids, ElementsAre(tokenizer->eod()));
  ids.resize(last.size());
  ASSERT_EQ(dataset.sequence_lengths()[1], std::ssize(last));
  dataset.read(1, 0, ids);
  EXPECT_TRUE(std::ranges::equal(ids, last));
}

INSTANTIATE_TEST_SUITE_P(All, LongLines, ::testing::Values("txt", "jsonl"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace megatron
