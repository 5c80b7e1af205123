// Faults that are done to the inside of another process: to its connections and to its memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace megatron {

/// Shuts down a TCP connection between process `victim` and another of `processes`, as if the link
/// were cut. `choice` selects one. Returns false if there is none. Throws a UserError if the system
/// does not allow it.
bool drop_link(pid_t victim, const std::vector<pid_t>& processes, std::uint64_t choice);

/// Like drop_link(), but sends bytes over the connection that `victim` did not send.
bool corrupt_link(pid_t victim, const std::vector<pid_t>& processes, std::uint64_t choice);

/// Flips one of the bits 16 to 27 of a float32 weight that the process has published (the upper
/// part of the mantissa, and the lower part of the exponent). Returns false if it has published
/// none. Throws a UserError if the system does not allow it.
bool flip_bit(pid_t victim, const std::filesystem::path& published, std::uint64_t choice);

}  // namespace megatron
