#include "megatron/transformer/fixed_blocks.h"

#include <ATen/Context.h>

namespace megatron {

bool wants_determinism() { return at::globalContext().deterministicAlgorithms(); }

}  // namespace megatron
