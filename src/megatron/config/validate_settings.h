// Rules that tie several settings together, as a list: all are evaluated, and all that fail are
// shown, with values and a fix.
#pragma once

#include <set>
#include <string>

#include "megatron/config/problems.h"
#include "megatron/config/settings.h"

namespace megatron {

using FieldNames = std::set<std::string, std::less<>>;

/// The rules on the run itself: batches, length, learning rate, data, this version's limits. Rules
/// about a field in `skip` (one whose value could not be read) are left out. Call before resolve().
Problems validate_run(const Settings& settings, const FieldNames& skip = {});

/// The part of validate_run on result validation.
Problems validate_reruns(const Settings& settings, const FieldNames& skip = {});

/// The part of validate_run on types of numbers and the scaling of the loss.
Problems validate_precision(const Settings& settings, const FieldNames& skip = {});

/// The part of validate_run on what a run shows and leaves.
Problems validate_profile(const Settings& settings, const FieldNames& skip = {});

/// The rules on the architecture, which may come from flags, a checkpoint or config.json. Call
/// after resolve().
Problems validate_model(const Settings& settings, const FieldNames& skip = {});

/// The rules on the architecture alone, as in validate_model without the sequence length of a run.
Problems validate_model(const TransformerConfig& model);

}  // namespace megatron
