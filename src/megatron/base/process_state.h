// What the kernel says of other processes.
#pragma once

#include <sys/types.h>

namespace megatron {

/// Returns whether a signal or a debugger has suspended the process. False if it does not exist.
bool is_process_stopped(pid_t process);

}  // namespace megatron
