// Lists of ranks, and their names in messages, which are brief even for thousands of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// Returns 0, 1, …, size − 1.
std::vector<std::int64_t> all_ranks(std::int64_t size);
/// Returns a list such as "3, 5-8, 12".
std::string rank_list_text(const std::vector<std::int64_t>& ranks);
/// Also says what they are: "rank 3", "ranks 0-2, 5".
std::string ranks_text(const std::vector<std::int64_t>& ranks);

}  // namespace megatron
