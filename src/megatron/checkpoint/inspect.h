// `megatron checkpoint inspect`: what a checkpoint or a Hugging Face directory holds, as text or
// JSON.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "megatron/base/json.h"

namespace megatron {

/// The contents of the latest checkpoint of `root` (or of the folder itself): progress,
/// architecture, tensors, files. UserError when none.
Json inspect_checkpoint(const std::filesystem::path& root);

/// The same as lines for people.
std::string inspection_text(const Json& inspection);

}  // namespace megatron
