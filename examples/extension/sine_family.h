// A family whose layers apply a sine in their MLP, and the MLP before attention.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/models/model_family.h"
#include "megatron/nn/layer_spec.h"

/// Returns the blocks of a layer.
std::vector<megatron::BlockSpec> sine_blocks(const megatron::LayerKind& kind, std::int64_t layer);

megatron::ModelFamily sine_family();
