// Parses --data-path and related flags: which datasets a run samples from, in what proportion.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

struct DataConfig;

/// Path prefixes with weights. Without weights, every dataset is weighted by its size.
struct Blend {
  std::vector<std::string> prefixes;
  std::optional<std::vector<double>> weights;
};

/// Parses a list of prefixes, or of alternating weights and prefixes. Errors name the flag or file
/// `source`.
Blend parse_blend(const std::vector<std::string>& list, const std::string& source);

/// The data of a run: one blend for all splits, one blend per split, or mock data (neither is set).
struct DataSources {
  std::optional<Blend> blend;
  std::optional<std::array<std::optional<Blend>, 3>> blend_per_split;
  bool is_mock() const { return !blend && !blend_per_split; }
};

/// Collects data_path, data_args_path, the per-split paths or per_split_data_args_path. Throws a
/// UserError when several of them are given, or none of them without mock_data.
DataSources data_sources(const DataConfig& config);

}  // namespace megatron
