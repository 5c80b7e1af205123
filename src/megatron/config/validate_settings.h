// Checks the rules between settings. All rules are evaluated, and every violation is reported with
// its values and a fix.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "megatron/config/problems.h"

namespace megatron {

struct Settings;
struct TransformerConfig;

using FieldNames = std::set<std::string, std::less<>>;

/// Checks the rules on a run: batches, length, learning rate, data and the limits of this version.
/// Rules on a field in `skip` (whose value could not be read) are left out. Call it before
/// resolve().
Problems validate_run(const Settings& settings, const FieldNames& skip = {});

/// Checks the rules on the architecture, which may come from flags, a checkpoint or config.json.
/// Call it after resolve(). With `noted`, it has only the notes on these settings.
Problems validate_model(const Settings& settings, const FieldNames& skip = {},
                        const FieldNames* noted = nullptr);

/// Checks the schedule against the number of microbatches of the first step. Returns no problems if
/// the layers are unknown, or if other pipeline flags are wrong, which validate_run() and
/// validate_model() report.
Problems check_pipeline_batches(const Settings& settings, std::int64_t num_microbatches);

/// Returns whether the schedule uses --microbatch-group-size-per-virtual-pipeline-stage.
bool has_microbatch_groups(const Settings& settings);

/// Checks the rules on an architecture alone, without the sequence length of a run.
Problems validate_model(const TransformerConfig& model);

}  // namespace megatron
