// Samples for supervised finetuning, as Megatron-LM's SFTDataset: the conversations of a line, or
// those that fill a sequence best, are packed into one sample without attention between them, and
// only answers have a loss.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/conversation_packing.h"
#include "megatron/datasets/index_cache.h"
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
  PackingStrategy packing = PackingStrategy::line;
  /// With the strategy line, shares() counts the padding of up to this many lines; 0: of all.
  std::int64_t report_lines = 0;
  bool cache = false;                ///< cache the lengths of conversations on disk
  std::string cache_folder = {};     ///< empty: a folder beside the file
  std::string prompt_format = {};    ///< part of the key of the cache
  std::string tokenizer_flags = {};  ///< part of the key of the cache
  std::vector<std::filesystem::path> tokenizer_files = {};  ///< the lengths depend on them
  TokenizerIdentity tokenizer = {};
};

class SftDataset : public SourceDataset {
 public:
  /// Throws a UserError when samples are requested of a part without conversations. Strategies
  /// other than line tokenize the whole part, or read its lengths from the cache; then broken
  /// conversations are UserErrors too. `warnings` are those of load_or_build().
  SftDataset(std::shared_ptr<const ConversationFile> file, SourcePart part,
             const SftDatasetOptions& options, std::shared_ptr<const PromptFormat> format,
             std::vector<std::string>& warnings);

  std::int64_t size() const override { return size_; }
  /// Labels without a loss are 0.
  Sample sample(std::int64_t index) const override;
  std::string describe(std::int64_t index) const override;
  /// Counts tokens and padding for every packing strategy. Tokens are 0 if not all were counted.
  std::vector<CorpusShare> shares(std::int64_t samples) const override;
  JsonText identifiers() const override;
  std::filesystem::path index_file() const override { return file_->path(); }

 private:
  /// sequence_length + 1 elements of each, where conversations begin and what holds padding.
  struct Packed {
    std::vector<std::int64_t> tokens, targets, positions, starts, padding;
  };
  Packed pack(std::int64_t index) const;
  bool append(const PromptFormat::Tokens& tokens, Packed& packed) const;
  PromptFormat::Tokens read_piece(const ConversationPiece& piece) const;
  void pad_to(std::size_t length, Packed& packed) const;

  ConversationLengths load_lengths(std::vector<std::string>& warnings) const;
  IndexCacheEntry cache_entry() const;
  JsonText description() const;
  SequenceLayout layout() const {
    return {.sequence_length = options_.sequence_length, .row_multiple = options_.row_multiple};
  }
  std::int64_t num_lines() const { return part_.end - part_.begin; }
  /// Returns the number of samples of one epoch.
  std::int64_t samples_per_epoch() const;
  /// Returns the first line of a sample.
  std::int64_t line(std::int64_t index) const;

  std::shared_ptr<const ConversationFile> file_;
  SftDatasetOptions options_;
  std::shared_ptr<const PromptFormat> format_;
  ConversationLengths lengths_;  ///< empty with the strategy line
  PackedConversations packed_;   ///< empty with the strategy line
  std::int64_t size_ = 0;
};

}  // namespace megatron
