// Samples of a fixed length cut from shuffled documents, as megatron-core's GPTDataset: the same
// seed gives the same samples in the same order.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/base/once.h"
#include "megatron/datasets/fim.h"
#include "megatron/datasets/gpt_index.h"
#include "megatron/datasets/index_cache.h"
#include "megatron/datasets/source_dataset.h"
#include "megatron/datasets/token_source.h"
#include "megatron/datasets/unique_description.h"
#include "megatron/datasets/word_masking.h"

namespace megatron {

struct GptDatasetOptions {
  std::int64_t sequence_length = 0;
  std::int64_t seed = 1234;     ///< 0 … 2³² − 1
  std::string split_text = {};  ///< value of --split; it is part of the cache's key
  std::optional<SplitMatrix> split_matrix = {};
  std::string cache_folder = {};  ///< empty: a folder beside the data
  bool cache = true;              ///< cache the sample order on disk
  bool defer_index = false;       ///< only count the samples; the first access builds the order
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  /// Attention and positions restart wherever a document of the data begins.
  bool inter_document_masking = false;
  bool drop_last_partial_validation_sequence = true;
  bool add_extra_token = true;
  std::int64_t eod = -1;
  std::int64_t pad = -1;  ///< −1: no id is padding
  TokenizerIdentity tokenizer = {};
  MaskedRequest masked = {};                        ///< of BERT and T5 (masked_dataset.h)
  std::shared_ptr<const FillInTheMiddle> fim = {};  ///< null: samples are the text as it is
  /// Returns the name of megatron-core's class, which is part of the cache's file names.
  std::string class_name() const { return fim ? "GPTFIMDataset" : "GPTDataset"; }
};

/// The raw ids of a sample.
struct SampleText {
  std::vector<std::int64_t> ids;
  /// Indices at which documents of the data begin, ascending; for inter_document_masking.
  std::vector<std::int64_t> document_begins = {};
  /// Padding, which has no loss, follows so many ids.
  std::int64_t num_tokens = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> without_label = {};  ///< indices
};

/// Mock data is cached only in `cache_folder`.
class GptDataset : public SourceDataset {
 public:
  /// Loads or builds the indices. For uncached mock data and with defer_index, the first access
  /// builds them. Throws a
  /// UserError when samples are requested of a part without tokens.
  GptDataset(std::shared_ptr<const TokenSource> source, SourcePart part,
             const GptDatasetOptions& options, std::vector<std::string>& warnings);

  std::int64_t size() const override { return size_; }
  Sample sample(std::int64_t index) const override;
  std::vector<std::int64_t> text(std::int64_t sample) const override;
  std::vector<CorpusShare> shares(std::int64_t samples) const override;

  const GptIndex& index() const;
  JsonText identifiers() const override;
  /// Returns the largest number of samples that megatron-core takes from so many epochs.
  std::int64_t samples_of_epochs(double epochs) const override;

 private:
  SampleText read_text(std::int64_t sample) const;
  IndexCacheEntry cache_entry() const;
  GptIndexInput index_input() const;
  EpochPlan plan() const;
  IndexArrays build() const;
  bool is_valid_cache(const IndexArrays& arrays) const;

  std::shared_ptr<const TokenSource> source_;
  GptDatasetOptions options_;
  std::int64_t size_ = 0;
  mutable Once index_once_;
  mutable GptIndex index_;
};

/// Throws a UserError for a sequence length or a seed that no dataset can have.
void check_order_options(const GptDatasetOptions& options);
/// Throws the UserError of a part without tokens of which samples are requested.
[[noreturn]] void throw_empty_split(const TokenSource& source, const SourcePart& part);
/// Throws the UserError of a part that would be repeated so often that its order has no room.
[[noreturn]] void throw_too_many_epochs(const TokenSource& source, const SourcePart& part,
                                        std::int64_t num_epochs, std::int64_t tokens_per_epoch);
/// Returns where the order of a class of samples is cached, without description and arrays. It
/// depends on nothing of the data but the lengths.
IndexCacheEntry index_cache_entry(const TokenSource& source, const SourcePart& part,
                                  const GptDatasetOptions& options, const std::string& class_name);

/// Splits raw ids into the tokens and labels of causal_fields(), and derives masks and positions.
Sample make_sample(const SampleFields& fields, SampleText text, const GptDatasetOptions& options);

}  // namespace megatron
