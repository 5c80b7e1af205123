// Reports how many tokens, samples and epochs of each data source a run takes for each split, as a
// table and as JSON.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/datasets/dataset.h"

namespace megatron {

struct Datasets;

struct SplitShare {
  std::string split;  ///< "train", "validation", "test", or "validation-<name>" of a named set
  CorpusShare corpus;
};

/// Returns what a run takes of each source: `num_samples` of each split (nullopt: one epoch), in
/// the order train, validation, test. `valid_suffixes` has one for each validation set.
std::vector<SplitShare> split_shares(const Datasets& datasets,
                                     const std::array<std::optional<std::int64_t>, 3>& num_samples,
                                     const std::vector<std::string>& valid_suffixes);

enum class DataColumns { brief, with_documents };

/// Returns a table with a title line and one line per source, or "" when `shares` is empty. Sources
/// that are packed add a table of the padding and the truncated tokens of each packing strategy,
/// conversations without a loss a warning, and --blend-schedule a table of what each mixture takes.
std::string data_table(const std::vector<SplitShare>& shares,
                       DataColumns columns = DataColumns::brief);

/// Returns [{"split": …, "source": …, "weight": …, "documents": …, "tokens": …, "samples": …,
/// "epochs": …}, …]. Tokens that are unknown are null. Sources that are packed have "packing":
/// [{"strategy": …, "used": …, "documents": …, "sequences": …, "tokens": …, "padding": …,
/// "truncated": …}, …], and "conversations_without_loss" if there are any. With --blend-schedule,
/// training sources have "mixtures": [{"first_iteration": …, "last_iteration": …, "weight": …,
/// "samples": …, "tokens": …, "epochs": …, "epochs_so_far": …}, …].
JsonText data_json(const std::vector<SplitShare>& shares);

}  // namespace megatron
