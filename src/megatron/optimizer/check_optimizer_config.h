// Validates the optimizer's configuration.
#pragma once

#include "megatron/config/optimizer_config.h"

namespace megatron {

/// UserErrors name the flag whose value is out of range.
void check_optimizer_config(const OptimizerConfig& config);

}  // namespace megatron
