// Settings from the environment: MEGATRON_NUM_LAYERS=12 is --num-layers 12.
#pragma once

#include "megatron/config/command_line.h"

namespace megatron {

/// One assignment for each variable MEGATRON_X that names a field; a list is separated by spaces. A
/// MEGATRON_X that is a setting but for a letter or two goes to `problems`; any other one is
/// remarked on in `notes`.
std::vector<Assignment> read_environment(const FieldIndex& index, char** environment,
                                         std::map<std::string, std::vector<std::string>>& notes,
                                         Problems& problems);

}  // namespace megatron
