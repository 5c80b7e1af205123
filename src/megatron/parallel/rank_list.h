// Names ranks in messages, briefly even for thousands of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// Returns a list such as "3, 5-8, 12".
std::string rank_list_text(const std::vector<std::int64_t>& ranks);
/// Also says what they are: "rank 3", "ranks 0-2, 5".
std::string ranks_text(const std::vector<std::int64_t>& ranks);

}  // namespace megatron
