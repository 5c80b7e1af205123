// The threads that a process may start.
#pragma once

#include <cstdint>

namespace megatron {

/// Throws a UserError if the process cannot have `count` more threads now. Call it before a library
/// starts threads that it cannot do without: LibTorch's pool waits forever for one that cannot
/// start.
void check_threads_start(std::int64_t count);

}  // namespace megatron
