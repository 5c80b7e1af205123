// Where a run writes files beside its checkpoints.
#pragma once

#include <string>

namespace megatron {

struct Settings;

/// Returns the folder where rank 0 writes metrics.jsonl; empty when it writes none.
std::string metrics_folder(const Settings& settings);

/// Returns the folder of the reports that ranks write when the run hangs; empty when they write
/// none.
std::string hang_report_folder(const Settings& settings);

}  // namespace megatron
