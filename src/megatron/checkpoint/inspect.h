// `megatron checkpoint inspect`: prints the contents of a checkpoint or a Hugging Face directory as
// text or JSON.
#pragma once

#include <filesystem>
#include <string>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Returns the contents of the latest checkpoint of `root`, or of the folder itself: progress,
/// architecture, tensors and files. Throws a UserError when there is no checkpoint.
Json inspect_checkpoint(const std::filesystem::path& root);

/// Formats the result of inspect_checkpoint() as text.
std::string inspection_text(const Json& inspection);

}  // namespace megatron
