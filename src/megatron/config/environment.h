// Reads settings from environment variables: MEGATRON_NUM_LAYERS=12 is equivalent to
// --num-layers 12.
#pragma once

#include "megatron/config/command_line.h"

namespace megatron {

/// Returns one assignment for each variable MEGATRON_X that names a field. List items are separated
/// by spaces. A name that differs from a setting by one or two letters is added to `problems`; any
/// other unknown name is added to `notes`.
std::vector<Assignment> read_environment(const FieldIndex& index, char** environment, Notes& notes,
                                         Problems& problems);

}  // namespace megatron
