// Samples for supervised finetuning, as Megatron-LM's SFTDataset: the conversations of a line are
// packed into one sample without attention between them, and only answers have a loss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/datasets/prompt_format.h"
#include "megatron/datasets/source_dataset.h"
#include "megatron/datasets/unique_description.h"

namespace megatron {

struct SftDatasetOptions {
  std::int64_t sequence_length = 0;
  std::int64_t seed = 1234;     ///< only identifies the dataset: samples keep the order of the file
  std::string split_text = {};  ///< value of --split
  std::optional<SplitMatrix> split_matrix = {};
  /// Conversations are filled up to multiples of this; twice the ranks of context parallelism.
  std::int64_t row_multiple = 1;
  TokenizerIdentity tokenizer = {};
};

class SftDataset : public SourceDataset {
 public:
  /// Throws a UserError when samples are requested of a part without conversations.
  SftDataset(std::shared_ptr<const ConversationFile> file, SourcePart part,
             const SftDatasetOptions& options, std::shared_ptr<const PromptFormat> format);

  std::int64_t size() const override { return size_; }
  /// Labels without a loss are 0.
  Sample sample(std::int64_t index) const override;
  std::vector<std::int64_t> text(std::int64_t index) const override;
  std::string describe(std::int64_t index) const override;
  /// Counts no tokens: only samples that are read are tokenized.
  std::vector<CorpusShare> shares(std::int64_t samples) const override;
  const SourcePart& part() const override { return part_; }
  OrderedJson identifiers() const override;
  std::filesystem::path index_file() const override { return file_->path(); }

 private:
  /// sequence_length + 1 elements of each, and where conversations begin.
  struct Packed {
    std::vector<std::int64_t> tokens, targets, positions, starts;
  };
  Packed pack(std::int64_t index) const;
  void pad_to(std::size_t length, Packed& packed) const;
  std::int64_t line(std::int64_t index) const {
    return part_.begin + index % (part_.end - part_.begin);
  }

  std::shared_ptr<const ConversationFile> file_;
  SourcePart part_;
  SftDatasetOptions options_;
  std::shared_ptr<const PromptFormat> format_;
  std::int64_t size_ = 0;
};

}  // namespace megatron
