// Runs independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace megatron {

/// Calls body(0) … body(count − 1) on up to eight threads and waits for all. Then it rethrows the
/// exception of the smallest index.
void parallel_for(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace megatron
