// The expected samples were made by megatron-core's BERTMaskedWordPieceDataset and
// T5MaskedWordPieceDataset (tests/parity/make_masked_fixtures.py).
#include "megatron/datasets/masked_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "datasets/corpus.h"
#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/data_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/builder.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

class MaskedDatasets : public ::testing::Test {
 protected:
  MaskedDatasets() {
    json_ = read_json(MEGATRON_SOURCE_DIR "/tests/datasets/fixtures/masked.json");
    std::string vocabulary;
    for (const Json& token : json_["tokens"]) vocabulary += token.get<std::string>() + "\n";
    TokenizerConfig config;
    config.tokenizer_type = "BertWordPieceLowerCase";
    config.vocab_file = folder_.write("vocab.txt", vocabulary);
    tokenizer_ = make_tokenizer(config);
    write_documents(json_["documents"].get<std::vector<std::vector<std::vector<std::int32_t>>>>());
  }

  void write_documents(const std::vector<std::vector<std::vector<std::int32_t>>>& documents) {
    IndexedDatasetBuilder builder(prefix(), TokenDtype::uint16);
    for (const auto& document : documents) {
      std::vector<std::int32_t> tokens, lengths;
      for (const auto& sentence : document) {
        tokens.insert(tokens.end(), sentence.begin(), sentence.end());
        lengths.push_back(static_cast<std::int32_t>(sentence.size()));
      }
      builder.add_document(tokens, lengths);
    }
    builder.finalize();
  }

  std::string prefix() const { return (folder_.path() / "corpus").string(); }

  DatasetRequest request(SampleKind kind) const {
    return {.sequence_length = 48,
            .num_samples = {40, 5, 0},
            .cache = false,
            .tokenizer = {.vocab_size = tokenizer_->vocab_size(), .eod = tokenizer_->eod()},
            .kind = kind,
            .masked = {.masking = {.max_ngram = kind == SampleKind::t5 ? 10 : 3,
                                   .geometric = kind == SampleKind::t5},
                       .tokens = masking_tokens(tokenizer_, 20),
                       .decoder_sequence_length = 60}};
  }

  Datasets build(const DatasetRequest& request, const std::string& split = "80,20,0") const {
    DataConfig config;
    config.data_path = {prefix()};
    config.split = split;
    return build_datasets(config, request);
  }

  /// Returns a sample as megatron-core gives it.
  static Json fields(const Dataset& dataset, std::int64_t index) {
    const Sample sample = dataset.sample(index);
    Json json;
    for (std::size_t i = 0; i < sample.values.size(); ++i) {
      const SampleField& field = (*sample.fields)[i];
      if (field.name == "position_ids") continue;
      Json& values = json[field.name == "tokens" ? "text" : field.name];
      std::visit([&](const auto& all) { values = Ids(all.begin(), all.end()); }, sample.values[i]);
      if (!field.per_position) values = values.at(0);
      if (field.name == "labels")
        for (std::size_t p = 0; p < values.size(); ++p)
          if (sample.get<float>("loss_mask")[p] == 0) values[p] = -1;
    }
    return json;
  }

  TemporaryFolder folder_;
  Json json_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(MaskedDatasets, GiveTheSamplesOfMegatronCore) {
  for (const Json& expected : json_["cases"]) {
    DatasetRequest request =
        this->request(expected["kind"] == "t5" ? SampleKind::t5 : SampleKind::bert);
    request.seed = expected["seed"];
    MaskingOptions& masking = request.masked.masking;
    masking.probability = expected["mask_prob"];
    masking.short_sequence_probability = expected["short_seq_prob"];
    masking.whole_words = expected.value("whole_words", true);
    masking.longer_ngrams = expected.value("longer_ngrams", false);
    masking.max_ngram = expected.value("max_ngram", masking.max_ngram);
    request.masked.binary_head = expected["head"];
    const Datasets datasets = build(request);
    EXPECT_EQ(datasets.train()->size(), expected["sizes"][0].get<std::int64_t>());
    EXPECT_EQ(datasets.valid()->size(), expected["sizes"][1].get<std::int64_t>());
    for (Json sample : expected["train"]) {
      const std::int64_t index = sample["index"];
      sample.erase("index");
      EXPECT_EQ(fields(*datasets.train(), index), sample) << expected["kind"] << " " << index;
    }
    for (std::size_t i = 0; i < expected["valid"].size(); ++i)
      EXPECT_EQ(fields(*datasets.valid(), static_cast<std::int64_t>(i)), expected["valid"][i]);
  }
}

TEST_F(MaskedDatasets, SamplesHoldTextAndLabels) {
  const Datasets bert = build(request(SampleKind::bert)), t5 = build(request(SampleKind::t5));
  const Json bert_fields = fields(*bert.train(), 3), t5_fields = fields(*t5.train(), 3);
  const Sample pair = bert.train()->sample(3), span = t5.train()->sample(3);
  EXPECT_EQ(bert.train()->text(3), bert_fields["text"].get<Ids>());
  EXPECT_EQ(t5.train()->text(3), t5_fields["text_enc"].get<Ids>());
  for (const auto& [sample, json] : {std::pair(pair, bert_fields), std::pair(span, t5_fields)}) {
    const Ids labels = json["labels"];
    for (std::size_t i = 0; i < labels.size(); ++i) {
      EXPECT_EQ(sample.get<float>("loss_mask")[i], labels[i] >= 0 ? 1 : 0);
      EXPECT_EQ(sample.get("labels")[i], std::max<std::int64_t>(labels[i], 0));
    }
  }
}

TEST_F(MaskedDatasets, AreBlendedAndCached) {
  DataConfig config;
  config.data_path = {"0.5", prefix(), "0.5", prefix()};
  config.split = "1,0,0";
  config.data_cache_path = (folder_.path() / "cache").string();
  DatasetRequest request = this->request(SampleKind::bert);
  request.num_samples = {30, 0, 0};
  request.cache = true;
  const Datasets built = build_datasets(config, request), loaded = build_datasets(config, request);
  ASSERT_EQ(built.train()->size(), 30);
  for (std::int64_t i = 0; i < 30; ++i)
    EXPECT_EQ(fields(*built.train(), i), fields(*loaded.train(), i));
  EXPECT_EQ(fields(*built.train(), 0)["text"], fields(*built.train(), 1)["text"]);
  EXPECT_EQ(built.train()->shares(30).size(), 2);
}

TEST_F(MaskedDatasets, MockDataHaveSentences) {
  DataConfig config;
  config.mock_data = true;
  for (const SampleKind kind : {SampleKind::bert, SampleKind::t5}) {
    const Datasets datasets = build_datasets(config, request(kind));
    ASSERT_NE(datasets.train(), nullptr);
    EXPECT_EQ(datasets.train()->sample(0).values.size(), kind == SampleKind::bert ? 8 : 7);
  }
}

TEST_F(MaskedDatasets, MockDataNeedNoSpecialTokens) {
  DataConfig config;
  config.mock_data = true;
  DatasetRequest request = this->request(SampleKind::bert);
  MaskingTokens& tokens = request.masked.tokens;
  tokens.cls = tokens.sep = tokens.mask = tokens.pad = -1;
  const Sample sample = build_datasets(config, request).train()->sample(0);
  EXPECT_EQ(sample.get("tokens").front(), tokens.vocab_size - 2);
}

TEST_F(MaskedDatasets, NameWhatIsMissing) {
  DatasetRequest few = request(SampleKind::t5);
  few.masked.tokens.sentinels.resize(1);
  few.masked.masking.probability = 0.5;
  const Datasets one_sentinel = build(few);
  EXPECT_THAT(message_of([&] {
                for (std::int64_t i = 0; i < 40; ++i) one_sentinel.train()->sample(i);
              }),
              HasSubstr("there are 1 sentinels"));
  few.masked.tokens.sentinels.clear();
  EXPECT_THAT(message_of([&] { build(few); }), HasSubstr("--vocab-extra-ids"));
  DatasetRequest narrow = request(SampleKind::t5);
  narrow.masked.decoder_sequence_length = 3;
  const Datasets short_decoder = build(narrow);
  EXPECT_THAT(message_of([&] {
                for (std::int64_t i = 0; i < 40; ++i) short_decoder.train()->sample(i);
              }),
              HasSubstr("--decoder-seq-length is 3"));
  narrow.masked.decoder_sequence_length = 0;
  EXPECT_THAT(message_of([&] { build(narrow); }), HasSubstr("need --decoder-seq-length"));
  DatasetRequest unnamed = request(SampleKind::bert);
  unnamed.masked.tokens.mask = -1;
  EXPECT_THAT(message_of([&] { build(unnamed); }), HasSubstr("need the token [MASK]"));
  DatasetRequest tiny = request(SampleKind::bert);
  tiny.sequence_length = 4;
  EXPECT_THAT(message_of([&] { build(tiny); }), HasSubstr("--seq-length must be at least 5"));
  write_documents({{{5, 6}}, {{7}}});
  EXPECT_THAT(message_of([&] { build(request(SampleKind::bert), "1,0,0"); }),
              HasSubstr("no document of at least 2 sentences"));
}

}  // namespace
}  // namespace megatron
