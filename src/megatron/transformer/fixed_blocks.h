// --deterministic-mode as operations see it.
#pragma once

namespace megatron {

/// Whether --deterministic-mode is on: ATen's deterministic algorithms are asked for.
bool wants_determinism();

}  // namespace megatron
