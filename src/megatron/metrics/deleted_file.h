// Files that are written line by line for days may be removed under the run.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace megatron {

/// Whether nothing lies at `path`. False when the system cannot tell, as for a network file system
/// that does not answer.
bool is_deleted(const std::filesystem::path& path);

/// Opens a vanished file again for appending, its folder made anew, and warns on stderr that what
/// was in it (`contents`: "lines", "points") is lost. Where that fails, the write that follows
/// does.
void reopen_deleted_file(const std::filesystem::path& path, std::ofstream& file,
                         std::string_view contents);

}  // namespace megatron
