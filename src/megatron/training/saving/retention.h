// Removes old checkpoints after a new one has been committed, never before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>

namespace megatron {

/// Removes the checkpoint of `iteration` below `root` atomically: readers see it whole or not at
/// all. Symbolic links are kept. Prints what it does to `out`.
void remove_checkpoint(const std::filesystem::path& root, std::int64_t iteration,
                       std::ostream& out);

/// Implements --save-retain-interval: removes checkpoint `previous`, the latest one before
/// `current`, unless it is a multiple of `interval`.
void remove_unless_multiple(const std::filesystem::path& root, std::int64_t previous,
                            std::int64_t current, std::int64_t interval, std::ostream& out);

/// Removes all checkpoints below `root` except `newest`. Used for non-persistent checkpoints.
void remove_all_but(const std::filesystem::path& root, std::int64_t newest, std::ostream& out);

}  // namespace megatron
