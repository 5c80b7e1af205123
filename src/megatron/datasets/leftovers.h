// Removes the temporary files that killed processes left.
#pragma once

#include <functional>
#include <string>

#include "megatron/base/files.h"

namespace megatron {

/// Removes the files of a folder whose name `is_leftover`. The caller must hold a lock that writers
/// of such files hold.
void remove_leftovers(const fs::path& folder,
                      const std::function<bool(const std::string& name)>& is_leftover);
/// Removes the files whose path is `start`, a dot and a number, and possibly more: temporary files
/// of processes that were killed.
void remove_leftovers(const std::string& start);

}  // namespace megatron
