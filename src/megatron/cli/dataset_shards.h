// Implements `megatron dataset info|show SHARDS` for the tar archives of WebDataset.
#pragma once

#include <string>
#include <vector>

#include "megatron/cli/dataset_show.h"

namespace megatron {

/// Returns whether the words name tar archives. Throws a UserError if only some of them do.
bool are_shards(const std::vector<std::string>& words);

/// Prints the number of shards, samples and bytes, and how many samples have which fields.
int describe_shards(const std::vector<std::string>& patterns, const DatasetCommandOptions& options);

/// Prints samples, one JSON line each: key, shard and the size of each field.
int show_shards(const std::vector<std::string>& patterns, const DatasetCommandOptions& options);

}  // namespace megatron
