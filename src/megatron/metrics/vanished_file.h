// Files that are written line by line for days may be removed under the run.
#pragma once

#include <filesystem>

namespace megatron {

/// Whether nothing lies at `path`. False when the system cannot tell, as for a network file system
/// that does not answer.
inline bool has_vanished(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::status(path, unknown).type() == std::filesystem::file_type::not_found;
}

}  // namespace megatron
