// Which datasets a run draws from and in what proportion: --data-path and its relatives.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/settings.h"

namespace megatron {

/// Path prefixes with their weights; without weights every dataset counts by its size.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;
};

/// Reads a list of prefixes, or of alternating weights and prefixes; `source` is the flag or file
/// that errors name.
Blend parse_blend(const std::vector<std::string>& list, const std::string& source);

/// Where the data of a run comes from: exactly one blend for all splits, or one blend for each
/// split, or mock data (neither).
struct DataSources {
  std::optional<Blend> blend;
  std::optional<std::array<std::optional<Blend>, 3>> blend_per_split;
  bool is_mock() const { return !blend && !blend_per_split; }
};

/// Collects data_path, data_args_path, the per-split paths or per_split_data_args_path; a UserError
/// when more than one way is used, or none without mock_data.
DataSources data_sources(const DataConfig& config);

}  // namespace megatron
