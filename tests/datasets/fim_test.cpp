// The expected samples were made by Megatron-LM's GPTFIMDataset
// (tests/parity/make_fim_fixtures.py).
#include "megatron/datasets/fim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "datasets/corpus.h"
#include "datasets/extended_tokenizer.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/indexed_dataset.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

constexpr const char* kSeparator = "<file_sep>";

FimConfig fim_config() { return {.fim_data = true, .fim_eod_token = "<fim_end>"}; }

std::shared_ptr<const Tokenizer> with_sentinels(const std::string& name,
                                                const TemporaryFolder& folder) {
  return test::with_tokens(
      name, {"<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<fim_end>", kSeparator},
      folder);
}

TEST(FillInTheMiddle, GivesTheSamplesOfMegatron) {
  const TemporaryFolder folder;
  std::istringstream lines(read_file(MEGATRON_SOURCE_DIR "/tests/datasets/fixtures/fim.jsonl"));
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = parse_json(line, "fim.jsonl");
    const std::string name = json["tokenizer"];
    if (!tokenizers.contains(name)) tokenizers[name] = with_sentinels(name, folder);
    FimConfig config = fim_config();
    config.fim_rate = json["rate"];
    config.fim_spm_rate = json["spm_rate"];
    config.fim_no_prefix = json.value("no_prefix", "");
    if (json.contains("fragment_rate")) {
      config.fim_fragment_rate = json["fragment_rate"].get<double>();
      config.fim_split_sample = kSeparator;
    }
    RandomState random = fim_random(json["seed"], json["index"]);
    const FillInTheMiddle fim(config, tokenizers[name]);
    EXPECT_EQ(fim.apply(json["sample"].get<Ids>(), random), json["expected"].get<Ids>()) << line;
  }
  EXPECT_EQ(count, 160);
}

TEST(FillInTheMiddle, NamesTheTokenThatIsMissing) {
  const TemporaryFolder folder;
  const auto tokenizer = with_sentinels("gpt2", folder);
  FimConfig config = fim_config();
  config.fim_suffix_token = "<suffix>";
  EXPECT_THAT(message_of([&] { FillInTheMiddle(config, tokenizer); }),
              HasSubstr("--fim-suffix-token <suffix>: the tokenizer has no such token"));
}

/// A sample does not depend on those that were read before, so that a run resumes and divides its
/// samples over any number of ranks and workers.
TEST(FillInTheMiddle, DrawsForEachSampleOfADatasetAnew) {
  const TemporaryFolder folder;
  const auto tokenizer = with_sentinels("gpt2", folder);
  std::vector<std::vector<std::int32_t>> documents(
      20, tokenizer->encode("The quick brown fox jumps over the lazy dog. It doesn't stop."));
  const std::string prefix = (folder / "corpus").string();
  test::write_corpus(prefix, documents);
  std::vector<std::string> warnings;
  FimConfig config = fim_config();
  config.fim_rate = 1;
  const auto dataset = [&](bool reorders) {
    GptDatasetOptions options{.sequence_length = 16, .cache = false};
    if (reorders) options.fim = std::make_shared<const FillInTheMiddle>(config, tokenizer);
    return GptDataset(std::make_shared<const IndexedDataset>(prefix),
                      {.path = prefix, .begin = 0, .end = 20, .num_samples = 12}, options,
                      warnings);
  };
  const GptDataset plain = dataset(false), reordered = dataset(true), again = dataset(true);
  EXPECT_NE(plain.identifiers().dump(), reordered.identifiers().dump());
  for (std::int64_t i = 0; i < 12; ++i) {
    RandomState random = fim_random(1234, i);
    const Ids expected = FillInTheMiddle(config, tokenizer).apply(plain.text(i), random);
    EXPECT_EQ(reordered.text(i), expected);
    EXPECT_NE(expected, plain.text(i));
    EXPECT_EQ(again.text(11 - i), reordered.text(11 - i));
  }
}

}  // namespace
}  // namespace megatron
