// Temporary names of a save and the removal of stale ones: only ours, only when no living process
// owns them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "megatron/base/file_system.h"

namespace megatron {

/// "iter_0000010.tmp-<host>-<pid>" (a pending folder), "iter_0000010.old.tmp-<host>-<pid>" (one
/// that was replaced or removed), "latest_checkpointed_iteration.txt.tmp.<pid>" (a file).
struct TemporaryName {
  std::string base = {};  ///< the name it was to have, or had
  std::string host = {};  ///< empty for files
  std::string process = {};
  bool is_backup = false;
};

/// What a run writes into its --save folder, and removes again, to learn whether it can.
inline constexpr const char* kWriteProbe = ".write_test";

/// Ends with `<base>.tmp-<host>-<pid>`: the mark of this process.
std::string temporary_suffix();

/// What `name` is a part of; nothing for other names.
std::optional<TemporaryName> parse_temporary_name(const std::string& name);

/// Whether `name` is a part of a save below --save that was never put in place.
bool is_temporary_name(const std::string& name);

/// Removes what interrupted saves left below `root`, and puts back what a replacement had moved
/// aside. Call under a FolderLock; without an enforced one (`is_locked` false), parts of processes
/// that live on this host stay, and so do parts of other hosts that changed within the hour.
void remove_stale_temporaries(const std::filesystem::path& root, bool is_locked,
                              FileSystem& files = default_file_system());

/// Removes what interrupted writers of `final_path` left beside it, unless they may still live.
void remove_stale_temporaries_of(const std::filesystem::path& final_path,
                                 FileSystem& files = default_file_system());

/// The folder to which a replacement that was interrupted moved root/`name` aside; nothing when
/// there is none.
std::optional<std::filesystem::path> find_backup(const std::filesystem::path& root,
                                                 const std::string& name);

/// remove_tree() for what a later save removes anyway: an error is not worth failing for.
void try_remove_tree(const std::filesystem::path& path, FileSystem& files);

}  // namespace megatron
