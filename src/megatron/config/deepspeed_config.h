// Reads the settings that a configuration of DeepSpeed gives a run: --deepspeed-config
// ds_config.json. https://www.deepspeed.ai/docs/config-json/
#pragma once

#include <filesystem>
#include <vector>

#include "megatron/config/command_line.h"

namespace megatron {

/// Reads a file. A key that is "auto" or null sets nothing. Values that change results and have no
/// counterpart here are added to `problems`; `notes` names all other keys that are not mapped.
std::vector<Assignment> read_deepspeed_config(const FieldIndex& index,
                                              const std::filesystem::path& path, Notes& notes,
                                              Problems& problems);

}  // namespace megatron
