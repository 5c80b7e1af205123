// `megatron checkpoint gc`: removes what interrupted saves left behind, and old iterations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>

namespace megatron {

struct GarbageOptions {
  std::optional<std::int64_t> keep = {};  ///< newest iterations to keep; unset: all
  bool is_dry_run = false;                ///< only say what would be removed
};

/// Removes from `root` the leftovers of interrupted saves and, with `keep`, the older iterations.
/// The one that a run resumes from stays, and so do newer ones and symbolic links. Prints a line
/// for each folder, and the space that it frees: a file that others hold too frees none. Throws a
/// UserError when a run writes below `root`, or it holds no checkpoint.
void collect_garbage(const std::filesystem::path& root, const GarbageOptions& options,
                     std::ostream& out);

}  // namespace megatron
