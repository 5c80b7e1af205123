// The name of this host, the identity of its kernel, the number of its CPUs, its limits, and what
// the kernel says of other processes.
#pragma once

#include <sys/types.h>

#include <string>

namespace megatron {

/// Returns the host name, which pending folders, locks and messages contain. Returns "localhost" if
/// it is unknown.
std::string host_name();

/// Returns the boot identity of this machine's kernel; empty if it is unknown. It is equal in all
/// containers and changes at boot.
std::string boot_id();

/// Returns the number of CPUs that this process may run on; at least 1.
int num_cpus();

/// Raises the number of files and sockets that this process and its children may open to what its
/// user is allowed.
void raise_open_file_limit();

/// Returns whether a signal or a debugger has suspended the process. False if it does not exist.
bool is_process_stopped(pid_t process);

}  // namespace megatron
