// What `megatron plan` checks before it searches layouts or predicts memory.
#pragma once

#include "megatron/config/command_line.h"

namespace megatron {

struct Settings;

/// Sets what older flags such as --swiglu stand for. Then checks what a run checks on one rank, as
/// far as layouts and memory depend on it. Throws one UserError with all problems.
void read_planned_run(Settings& run, ParseResult& parsed);

}  // namespace megatron
