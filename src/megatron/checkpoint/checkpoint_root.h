// The folder that --save and --load name: iter_%07d folders, perhaps `release`, and
// latest_checkpointed_iteration.txt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

inline constexpr const char* kTrackerFile = "latest_checkpointed_iteration.txt";
inline constexpr const char* kReleaseFolder = "release";

/// "iter_0000010".
std::string iteration_folder(std::int64_t iteration);

/// What the tracker names: an iteration, or the release (no value inside). UserError for any other
/// content.
struct TrackerContent {
  std::optional<std::int64_t> iteration;
};
/// Nothing when there is no tracker.
std::optional<TrackerContent> read_tracker(const std::filesystem::path& root);

/// Iterations with a committed folder, ascending.
std::vector<std::int64_t> committed_iterations(const std::filesystem::path& root);

/// The folder of ours to load: `step`, or what the tracker names, or the newest committed one.
/// Nothing when `root` holds no checkpoint of ours.
std::optional<std::filesystem::path> find_checkpoint_folder(const std::filesystem::path& root,
                                                            std::optional<std::int64_t> step);

/// UserError naming what is there unless a conversion may write into `folder`: it does not exist,
/// is empty, or holds only what interrupted saves left.
void require_empty_folder(const std::filesystem::path& folder);

/// Every committed folder of ours below `root` (or `root` itself), in order.
std::vector<std::filesystem::path> all_checkpoint_folders(const std::filesystem::path& root);

}  // namespace megatron
