// What an optimizer cannot work with.
#pragma once

#include "megatron/config/optimizer_config.h"

namespace megatron {

/// UserErrors name the flag whose value is out of range.
void check_config(const OptimizerConfig& config);

}  // namespace megatron
