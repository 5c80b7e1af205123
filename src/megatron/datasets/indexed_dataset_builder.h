// Writes `prefix.{bin,idx}` in Megatron's format from tokens or by concatenating whole datasets.
// The final names do not exist before finalize().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/indexed_dataset.h"

namespace megatron {

class IndexedDatasetBuilder {
 public:
  IndexedDatasetBuilder(std::string prefix, TokenDtype type, bool multimodal = false);
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;
  /// Removes the temporary files if finalize() was not called.
  ~IndexedDatasetBuilder();

  /// Appends one document whose sequences have the given lengths (none for an empty document).
  /// Throws a UserError when an id does not fit the element type.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::int32_t> lengths,
                    std::span<const std::int8_t> modes = {});
  /// Appends all sequences of another dataset of the same type.
  void add_dataset(const IndexedDataset& dataset);
  /// Writes the index and renames both files to their final names.
  void finalize();

  std::int64_t num_sequences() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t num_documents() const {
    return static_cast<std::int64_t>(document_indices_.size()) - 1;
  }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  void write_tokens(std::span<const std::int32_t> tokens);
  void write_index(const std::string& path) const;

  std::string prefix_, temporary_;
  TokenDtype type_;
  bool multimodal_, finalized_ = false;
  std::unique_ptr<FileWriter> bin_;
  std::int64_t num_tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> document_indices_ = {0};
  std::vector<std::int8_t> modes_;
};

}  // namespace megatron
