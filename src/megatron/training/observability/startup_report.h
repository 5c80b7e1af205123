// Formats Megatron's startup lines: layout, vocabulary, datasets and parameter counts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "megatron/config/data_phase.h"

namespace megatron {

struct Rank;

/// Returns `using world size: 1, data-parallel size: 1, …`.
std::string world_line(const Rank& rank);

/// Returns ` > padded vocab (size: …) with … dummy tokens (new size: …)`.
std::string padded_vocab_line(std::int64_t vocab_size, std::int64_t padded_size);

/// Returns the lines with the requested sizes of the three datasets. nullopt is printed as None and
/// means one epoch.
std::string dataset_sizes_block(const std::array<std::optional<std::int64_t>, 3>& samples);

/// Returns `> phase 2 of 3 of the data: iterations 501 to 1000, …`.
std::string phase_line(const DataPhase& phase);

/// Returns ` > number of parameters on (tensor, pipeline) model parallel rank (0, 0): N`.
std::string parameter_count_line(std::int64_t parameters);

}  // namespace megatron
