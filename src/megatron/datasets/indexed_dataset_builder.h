// Writes `prefix.{bin,idx}` in Megatron's format from tokens or by concatenating whole datasets.
// The final names do not exist before finalize(). Memory does not grow with the documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/dataset_part.h"
#include "megatron/datasets/indexed_dataset.h"

namespace megatron {

struct IndexedDatasetBuilderOptions {
  std::string prefix;
  TokenDtype type = TokenDtype::int32;
  bool multimodal = false;
  /// Document i goes to partition i mod num_partitions; the dataset holds one partition after the
  /// other.
  std::int64_t num_partitions = 1;
  /// The value of checkpoint() from which a run that was killed continues; empty: start anew.
  std::vector<PartState> resumed = {};
};

/// While it exists, no other builder can be made for the same prefix: a UserError says so. What
/// earlier processes that were killed left of the prefix's temporary files is removed.
class IndexedDatasetBuilder {
 public:
  explicit IndexedDatasetBuilder(IndexedDatasetBuilderOptions options);
  IndexedDatasetBuilder(std::string prefix, TokenDtype type, bool multimodal = false);
  IndexedDatasetBuilder(const IndexedDatasetBuilder&) = delete;
  IndexedDatasetBuilder& operator=(const IndexedDatasetBuilder&) = delete;
  /// Removes the temporary files.
  ~IndexedDatasetBuilder();

  /// Appends one document whose sequences have the given lengths (none for an empty document).
  /// Throws a UserError when an id does not fit the element type.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::int32_t> lengths,
                    std::span<const std::int8_t> modes = {});
  /// Appends all sequences of another dataset of the same type.
  void add_dataset(const IndexedDataset& dataset);
  /// Makes the documents so far durable and returns what a later builder needs to resume from here.
  std::vector<PartState> checkpoint();
  /// Merges the partitions and writes the index. Only finalize() may follow.
  void prepare_to_finalize();
  /// Renames both files to their final names, after prepare_to_finalize() if that was not called.
  void finalize();

  /// Locks the files of a prefix. Throws a UserError if another process has the lock.
  static FileLock take_lock(const std::string& prefix);
  /// Returns whether the files of a killed run hold what they held at its checkpoint().
  static bool can_resume(const IndexedDatasetBuilderOptions& options);

  std::int64_t num_sequences() const { return total_.sequences; }
  std::int64_t num_documents() const { return total_.documents; }
  std::int64_t num_tokens() const { return total_.tokens; }

 private:
  void remove_parts() const;

  IndexedDatasetBuilderOptions options_;
  FileLock lock_;
  std::vector<DatasetPart> parts_;
  PartState total_;
  bool is_prepared_ = false;
};

}  // namespace megatron
