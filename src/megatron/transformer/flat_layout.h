// Where parameters lie in one flat allocation: weights, gradients, main weights and optimizer states share the rule.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/transformer/parameter.h"

namespace megatron {

/// Parameter i starts at element offsets[i], a multiple of 16; `size` elements in all.
struct FlatLayout {
  std::vector<std::int64_t> offsets;
  std::int64_t size = 0;
};

FlatLayout flat_layout(const std::vector<Parameter*>& parameters);

}  // namespace megatron
