// The root folder that --save and --load name. It holds iter_%07d folders, possibly `release`, and
// latest_checkpointed_iteration.txt (the tracker).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

inline constexpr const char* kTrackerFile = "latest_checkpointed_iteration.txt";
inline constexpr const char* kReleaseFolder = "release";

/// Returns the folder name of an iteration, such as "iter_0000010".
std::string iteration_folder(std::int64_t iteration);

/// The content of the tracker: an iteration, or nullopt for the release.
struct TrackerContent {
  std::optional<std::int64_t> iteration;
};
/// Reads the tracker; nullopt when there is none. Throws a UserError for invalid content.
std::optional<TrackerContent> read_tracker(const std::filesystem::path& root);

/// Returns the iterations with a committed folder, ascending.
std::vector<std::int64_t> committed_iterations(const std::filesystem::path& root);

/// Returns the native folder to load: that of `step`, else the one the tracker names, else the
/// newest committed one. Returns nullopt when `root` holds no native checkpoint.
std::optional<std::filesystem::path> find_checkpoint_folder(const std::filesystem::path& root,
                                                            std::optional<std::int64_t> step);

/// Throws a UserError that names the content unless a conversion may write to `folder`: it must not
/// exist, be empty, or hold only leftovers of interrupted saves.
void require_empty_folder(const std::filesystem::path& folder);

/// Returns every committed native folder below `root`, or `root` itself, in order.
std::vector<std::filesystem::path> all_checkpoint_folders(const std::filesystem::path& root);

}  // namespace megatron
