// Validates the optimizer's configuration.
#pragma once

#include "megatron/config/optimizer_config.h"

namespace megatron {

/// Throws a UserError that names the flag when a value is out of range.
void check_optimizer_config(const OptimizerConfig& config);

}  // namespace megatron
