// The starts of a run in which one process takes part (--inprocess-restart).
#pragma once

#include <functional>

namespace megatron {

/// Runs one start of a run, and again for every start that `megatron launch` keeps this process
/// for, in the environment of that start. `start` returns the exit code of the rank; one other than
/// 0 and 2 makes the process offer itself to the launcher. Returns the last exit code.
int run_starts(const std::function<int()>& start);

}  // namespace megatron
