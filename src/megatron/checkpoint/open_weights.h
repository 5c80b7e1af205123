// The weights of a source, of either kind, by our names.
#pragma once

#include <memory>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/weight_reader.h"

namespace megatron {

std::unique_ptr<WeightReader> open_weights(const CheckpointSource& source);

}  // namespace megatron
