// --deterministic-mode: the same bits from any number of intra-op threads (docs/determinism.md).
#pragma once

#include "megatron/config/settings.h"

namespace megatron {

/// Sets the libraries up before the first operation. UserError when the environment asks for the
/// contrary.
void set_determinism(const TrainingConfig& config);

}  // namespace megatron
