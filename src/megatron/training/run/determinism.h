// Implements --deterministic-mode: results are bitwise identical for any number of intra-op threads
// (docs/determinism.md).
#pragma once

namespace megatron {

struct TrainingConfig;

/// Configures LibTorch and the math libraries; call it before the first operation. UserError when
/// an environment variable contradicts deterministic mode.
void set_determinism(const TrainingConfig& config);

}  // namespace megatron
