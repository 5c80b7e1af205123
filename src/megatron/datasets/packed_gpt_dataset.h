// Samples that hold whole documents, packed so that few are divided, without attention between
// them (datasets/packed_documents.h). megatron-core has no such dataset.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/base/once.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/packed_documents.h"

namespace megatron {

/// A sample is a sequence. Those of an epoch come in random order, another one in each epoch. A run
/// that takes more samples begins with those of a shorter one. A token is the label of the token
/// before it in its document, also where a document is divided; the last token of a document has no
/// label.
class PackedGptDataset : public SourceDataset {
 public:
  /// Loads or builds the sequences and, without `options.defer_index`, their order. `options` must
  /// have add_extra_token and no fim. Throws a UserError when samples are requested of a part
  /// without two tokens that follow each other.
  PackedGptDataset(std::shared_ptr<const TokenSource> source, SourcePart part,
                   const GptDatasetOptions& options, PackingStrategy strategy,
                   std::vector<std::string>& warnings);

  std::int64_t size() const override { return size_; }
  Sample sample(std::int64_t index) const override;
  /// Returns sequence_length + 1 ids. The last one is padding unless a document continues there.
  std::vector<std::int64_t> text(std::int64_t index) const override;
  std::vector<CorpusShare> shares(std::int64_t samples) const override;
  JsonText identifiers() const override;

 private:
  SampleText read_sequence(std::int64_t index) const;
  DocumentPackingInput packing_input() const;
  IndexCacheEntry sequences_entry() const;
  IndexCacheEntry order_entry() const;
  IndexArrays pack() const;
  IndexArrays build_order() const;
  const NpyArray& order() const;

  std::shared_ptr<const TokenSource> source_;
  GptDatasetOptions options_;
  PackingStrategy strategy_;
  PackedDocuments packed_;
  std::int64_t size_ = 0;
  mutable Once order_once_;
  mutable NpyArray order_;  ///< uint32 [samples]: the sequence at each position in training
};

}  // namespace megatron
