// Sizes of context parallelism: its numbers of ranks, and the tokens of a rank.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

struct ParallelConfig;
struct Settings;

/// Returns the numbers of ranks, up to `limit`, that can share a sequence: 1, and the divisors of
/// half its length, because each rank has two chunks.
std::vector<std::int64_t> context_sizes(std::int64_t seq_length, std::int64_t limit);

/// Returns the tokens of a microbatch on one of `ranks` ranks of cp. With hybrid context
/// parallelism it has at most these.
std::int64_t tokens_per_rank(const Settings& settings, std::int64_t ranks);

/// Returns the number of ranks that divide heads in layers with a2a+p2p; 1 without such layers.
/// Requires sizes that context_sharding_rules() accept.
std::int64_t cp_a2a_size(const ParallelConfig& parallel);

}  // namespace megatron
