// The threads that a process may start.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

#include "megatron/base/error.h"

namespace megatron {

/// Returns the error that `what` ("a thread of the data loader") cannot start, and which limits to
/// raise.
UserError thread_error(const std::string& what, const std::system_error& cause);

/// Throws a UserError if the process cannot have `count` more threads now. Call it before a library
/// starts threads that it cannot do without: LibTorch's pool waits forever for one that cannot
/// start.
void check_threads_start(std::int64_t count);

}  // namespace megatron
