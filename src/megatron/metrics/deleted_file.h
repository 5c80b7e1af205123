// Handles the deletion of a log file during a run. Such files stay open for days.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace megatron {

/// Returns whether there is no file at `path`. Returns false when the system cannot say, for
/// example on an unresponsive network file system.
bool is_deleted(const std::filesystem::path& path);

/// Reopens a deleted file for appending, creates its folder if needed, and warns on stderr that its
/// `contents` ("lines", "points") are lost. If reopening fails, the next write to `file` fails.
void reopen_deleted_file(const std::filesystem::path& path, std::ofstream& file,
                         std::string_view contents);

}  // namespace megatron
