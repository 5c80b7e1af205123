// Samples of masked sentences, as megatron-core's MaskedWordPieceDataset: what its datasets for
// BERT and T5 have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/index_cache.h"
#include "megatron/datasets/source_dataset.h"
#include "megatron/datasets/token_source.h"
#include "megatron/datasets/unique_description.h"
#include "megatron/datasets/word_masking.h"

namespace megatron {

/// Sentences that belong to documents: a sequence is a sentence.
struct SentenceSource {
  std::shared_ptr<const TokenSource> tokens;
  UnalignedView<std::int64_t> document_begins;  ///< the first sentence of every document, then the
                                                ///< number of sentences; `tokens` owns it
  std::int64_t num_documents() const {
    return static_cast<std::int64_t>(document_begins.size()) - 1;
  }
};

/// The parts of a source are ranges of documents. The seed is below 2³¹.
class MaskedDataset : public SourceDataset {
 public:
  std::int64_t size() const override { return sample_index_.shape()[0]; }
  std::vector<CorpusShare> shares(std::int64_t samples) const override;
  JsonText identifiers() const override;
  const NpyArray& sample_index() const { return sample_index_; }

 protected:
  struct Kind {
    std::string class_name;  ///< of megatron-core
    std::vector<SampleField> fields;
    std::int64_t added_tokens = 0;  ///< tokens that a sample has besides those of its sentences
    std::int64_t min_sentences = 1;
    std::string key;  ///< more of what identifies the samples
    JsonText value;
  };
  /// Loads or builds the sample index. Throws a UserError when samples are requested of a part
  /// without documents that can give one.
  MaskedDataset(SentenceSource source, SourcePart part, const GptDatasetOptions& options, Kind kind,
                std::vector<std::string>& warnings);

  /// The sentences of a sample, and the generator that masks it.
  struct Draw {
    std::vector<std::vector<std::int64_t>> sentences;
    std::int64_t target_length = 0;
    RandomState random;
  };
  Draw draw(std::int64_t index) const;
  const GptDatasetOptions& options() const { return options_; }

 private:
  IndexCacheEntry cache_entry() const;
  NpyArray build() const;
  [[noreturn]] void throw_empty_part() const;

  SentenceSource source_;
  GptDatasetOptions options_;
  Kind kind_;
  NpyArray sample_index_;
};

/// Makes the samples of BERT, two parts of a document, in order or not, with masked words, or of
/// T5, in which sentinels stand for runs of words that the decoder predicts. Their fields have
/// megatron-core's names.
std::shared_ptr<const SourceDataset> make_bert_dataset(const SentenceSource& source,
                                                       const SourcePart& part,
                                                       const GptDatasetOptions& options,
                                                       std::vector<std::string>& warnings);
std::shared_ptr<const SourceDataset> make_t5_dataset(const SentenceSource& source,
                                                     const SourcePart& part,
                                                     const GptDatasetOptions& options,
                                                     std::vector<std::string>& warnings);

/// Throws a UserError unless the tokenizer has the token, whose id is ≥ 0 then.
void require_token(std::int64_t id, const std::string& token, const std::string& dataset);

}  // namespace megatron
