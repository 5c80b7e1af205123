// Builds the three datasets of a run from settings, as megatron-core's
// BlendedMegatronDatasetBuilder does.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/storage/remote_storage.h"
#include "megatron/datasets/blend_phases.h"
#include "megatron/datasets/dataset.h"
#include "megatron/datasets/split.h"
#include "megatron/datasets/unique_description.h"
#include "megatron/datasets/word_masking.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

struct DataConfig;
enum class SampleKind;

/// The properties of a tokenizer that datasets use.
struct DataTokenizer {
  std::int64_t vocab_size = 0;  ///< used by mock data only
  std::int64_t eod = -1;
  std::int64_t pad = -1;  ///< −1: none. Ignored when equal to `eod`, unless
                          ///< allow_ambiguous_pad_tokens is set
  TokenizerIdentity identity = {};
  std::string flags = {};            ///< encoder_flags(), on which cached lengths of --sft depend
  std::vector<fs::path> files = {};  ///< tokenizer_paths(), on which they depend too
  std::shared_ptr<const Tokenizer> text = {};  ///< required by --fim-data and --sft
  ChatFiles chat = {};                         ///< for --sft
};

/// Returns what masked samples need, with the settings of Megatron-LM's pretrain_bert.py and
/// pretrain_t5.py. `extra_ids` are those of masking_tokens().
MaskedRequest masked_request(SampleKind kind, const DataConfig& config,
                             const std::shared_ptr<const Tokenizer>& tokenizer,
                             std::int64_t extra_ids);

struct DatasetRequest {
  std::int64_t sequence_length = 0;
  std::int64_t seed = 1234;
  /// Number of train, valid and test samples. nullopt means one epoch and requires a blend without
  /// weights. A UserError is thrown when samples are requested of a split that has no sequences.
  std::array<std::optional<std::int64_t>, 3> num_samples = {};
  /// Its phases, if there are any, replace the weights of the train blend.
  BlendSchedule train_schedule = {};
  /// A train blend without weights that has fewer samples than requested is mixed over as many
  /// epochs as needed, in proportion to its datasets. Otherwise it has one epoch, as in
  /// megatron-core.
  bool repeats_train = false;
  bool drop_last_partial_validation_sequence = true;
  bool multiple_validation_sets = false;  ///< one set per prefix of the validation split's own data
                                          ///< instead of their blend
  std::int64_t row_multiple = 1;  ///< conversations of --sft are filled up to multiples of this
  std::int64_t packing_report_lines = 1000;  ///< the report of --sft counts the padding of up to
                                             ///< this many lines; 0: of all
  bool cache = true;                         ///< cache sample orders on disk
  DataTokenizer tokenizer = {};
  SampleKind kind = {};       ///< gpt
  MaskedRequest masked = {};  ///< with another kind than gpt
};

struct Datasets {
  std::array<std::shared_ptr<const Dataset>, 3> splits;    ///< train, valid, test; null for a split
                                                           ///< without data or without samples
  std::vector<std::shared_ptr<const Dataset>> valid_sets;  ///< the valid split, or one set per
                                                           ///< prefix; then splits[1] is null
  std::vector<std::string> warnings;                       ///< to be printed once
  const Dataset* train() const { return splits[0].get(); }
  const Dataset* valid() const { return splits[1].get(); }
  const Dataset* test() const { return splits[2].get(); }
  /// Returns the split; throws a UserError when it is null.
  const Dataset& require(Split split) const;
};

/// Returns where data of remote paths is copied to.
StorageOptions storage_options(const DataConfig& config);

/// Builds or loads all indices, several datasets at a time. Processes that call it later find the
/// indices in the cache.
Datasets build_datasets(const DataConfig& config, const DatasetRequest& request);

/// Returns the number of training samples of so many epochs, rounded down: those that each source
/// has in its train split, whatever its weight. Reads lengths only, except for packed
/// conversations, which are tokenized.
std::int64_t count_train_samples(const DataConfig& config, const DatasetRequest& request,
                                 double epochs);

/// Makes the datasets of a run with --dataloader-type external: a function of the program that
/// links the library. Every rank calls it, and gets the same samples: sample i of `splits[0]` is
/// the one that follows i consumed samples, however many ranks there are. A split of which
/// `num_samples` wants none may be null.
using DatasetBuilder = std::function<Datasets(const DataConfig&, const DatasetRequest&)>;

}  // namespace megatron
