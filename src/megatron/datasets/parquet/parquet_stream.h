// Reads a Parquet file as JSON lines, through the plugin that links Arrow's library.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/datasets/text_stream.h"

namespace megatron {

/// Opens the plugin on first use. Its lines are numbered like the rows, from 1. Throws a UserError
/// that says how to get the plugin where it is absent.
std::unique_ptr<TextStream> open_parquet(const fs::path& path,
                                         const std::vector<std::string>& columns);

}  // namespace megatron
