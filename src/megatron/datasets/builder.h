// From settings to the three datasets of a run, as megatron-core's BlendedMegatronDatasetBuilder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/split.h"
#include "megatron/datasets/unique_description.h"

namespace megatron {

/// What datasets need to know of a tokenizer.
struct DataTokenizer {
  std::int64_t vocab_size = 0;  ///< used by mock data only
  std::int64_t eod = -1;
  std::int64_t pad = -1;  ///< −1: none. Equal to `eod`: ignored unless allow_ambiguous_pad_tokens
  TokenizerIdentity identity = {};
};

struct DatasetRequest {
  std::int64_t sequence_length = 0;
  std::int64_t seed = 1234;
  /// Samples of train, valid and test; nothing: one epoch (only without weights). Samples asked of
  /// a split whose share of a corpus rounds to nothing are refused.
  std::array<std::optional<std::int64_t>, 3> num_samples = {};
  bool drop_last_partial_validation_sequence = true;
  bool multiple_validation_sets =
      false;  ///< a set for each prefix of the validation split's own data, instead of their blend
  bool cache = true;  ///< keep orders on disk
  DataTokenizer tokenizer = {};
};

struct Datasets {
  std::array<std::shared_ptr<const Dataset>, 3>
      splits;  ///< train, valid, test; null: no share of the data, or nothing asked of an empty one
  std::vector<std::shared_ptr<const Dataset>>
      valid_sets;  ///< the valid split, or its several sets (splits[1] is null then)
  std::vector<std::string> warnings;  ///< to be shown once
  const Dataset* train() const { return splits[0].get(); }
  const Dataset* valid() const { return splits[1].get(); }
  const Dataset* test() const { return splits[2].get(); }
  /// The split; a UserError when it is null.
  const Dataset& require(Split split) const;
};

/// Builds or loads all indices, several datasets at a time. Callers in other processes find the
/// caches made.
Datasets build_datasets(const DataConfig& config, const DatasetRequest& request);

}  // namespace megatron
