// Validates the optimizer's configuration.
#pragma once

namespace megatron {

struct OptimizerConfig;

/// Throws a UserError that names the flag when a value is out of range.
void check_optimizer_config(const OptimizerConfig& config);

}  // namespace megatron
