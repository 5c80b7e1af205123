// Prints what `megatron check` found.
#pragma once

#include <string>

#include "megatron/training/layout_check/layout_check.h"

namespace megatron {

/// Returns the scaled sizes, a table of the parts of the model with their largest relative
/// differences, the first value that differs, and the verdict.
std::string check_report(const ScaledRun& scaled, const LayoutCheckResult& result);

/// Returns the same as one JSON object.
std::string check_json(const ScaledRun& scaled, const LayoutCheckResult& result);

}  // namespace megatron
