// Temporary names that saves use, and the removal of stale ones. Only our own names are removed,
// and only when no living process owns them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "megatron/base/file_system.h"

namespace megatron {

/// The parts of a temporary name: "iter_0000010.tmp-<host>-<pid>" (a pending folder),
/// "iter_0000010.old.tmp-<host>-<pid>" (a replaced or removed folder), or
/// "latest_checkpointed_iteration.txt.tmp.<pid>" (a file).
struct TemporaryName {
  std::string base = {};  ///< final name of a pending folder or file; old name of a backup
  std::string host = {};  ///< empty for files
  std::string process = {};
  bool is_backup = false;
};

/// File that a run writes to its --save folder and removes, to check that it can write there.
inline constexpr const char* kWriteProbe = ".write_test";

/// Returns ".tmp-<host>-<pid>", the suffix of this process's pending folders.
std::string temporary_suffix();

/// Parses a temporary name; nullopt for other names.
std::optional<TemporaryName> parse_temporary_name(const std::string& name);

/// Returns whether `name` is a temporary name of a save below --save.
bool is_temporary_name(const std::string& name);

/// Removes leftovers of interrupted saves below `root`, and restores a folder that an interrupted
/// replacement had moved aside. Call it while holding a FolderLock. When the lock is not enforced
/// (`is_locked` is false), it keeps files of living processes on this host, and files of other
/// hosts that changed within the last hour.
void remove_stale_temporaries(const std::filesystem::path& root, bool is_locked,
                              FileSystem& files = default_file_system());

/// Removes leftovers of interrupted writers of `final_path`, unless those processes may be alive.
void remove_stale_temporaries_of(const std::filesystem::path& final_path,
                                 FileSystem& files = default_file_system());

/// Returns the folder to which an interrupted replacement moved root/`name` aside; nullopt when
/// there is none.
std::optional<std::filesystem::path> find_backup(const std::filesystem::path& root,
                                                 const std::string& name);

/// Calls remove_tree() and ignores errors, because a later save removes the leftovers.
void try_remove_tree(const std::filesystem::path& path, FileSystem& files);

}  // namespace megatron
