// How much memory this process holds, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// `[Rank 0] (after N iterations) memory (MB) | resident: … | max resident: …`
std::string memory_line(std::int64_t iterations);

}  // namespace megatron
