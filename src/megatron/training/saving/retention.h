// Which checkpoints stay after a new one is committed. Nothing is removed before that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>

namespace megatron {

/// Takes the checkpoint of `iteration` below `root` away in one step: it is never there by half. A
/// symbolic link is left alone. What is done is said on `out`.
void remove_checkpoint(const std::filesystem::path& root, std::int64_t iteration,
                       std::ostream& out);

/// --save-retain-interval: removes `previous`, the latest checkpoint before the one of `current`
/// was committed, unless it is a multiple.
void remove_unless_multiple(const std::filesystem::path& root, std::int64_t previous,
                            std::int64_t current, std::int64_t interval, std::ostream& out);

/// Non-persistent checkpoints: removes all of `root` but that of `newest`.
void remove_all_but(const std::filesystem::path& root, std::int64_t newest, std::ostream& out);

}  // namespace megatron
