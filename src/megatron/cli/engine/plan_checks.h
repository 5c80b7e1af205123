// What `megatron plan` checks before it searches layouts or predicts memory.
#pragma once

#include "megatron/config/settings.h"

namespace megatron {

/// Checks what a run checks on one rank, as far as layouts and memory depend on it. Throws one
/// UserError with all problems.
void check_planned_run(Settings settings);

}  // namespace megatron
