// What a run says before its first step, in Megatron's words: the layout, the vocabulary, the
// datasets, the memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "megatron/parallel/rank.h"

namespace megatron {

/// `using world size: 1, data-parallel size: 1, …`
std::string world_line(const Rank& rank);

/// ` > padded vocab (size: …) with … dummy tokens (new size: …)`
std::string padded_vocab_line(std::int64_t vocab_size, std::int64_t padded_size);

/// The three sizes asked of the datasets; nothing is None: one epoch.
std::string dataset_sizes_block(const std::array<std::optional<std::int64_t>, 3>& samples);

/// ` > number of parameters on (tensor, pipeline) model parallel rank (0, 0): N`
std::string parameter_count_line(std::int64_t parameters);

}  // namespace megatron
