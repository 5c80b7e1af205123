// Opens the weights of a native checkpoint or a Hugging Face directory.
#pragma once

#include <memory>

#include "megatron/checkpoint/weight_reader.h"

namespace megatron {

struct CheckpointSource;

/// Returns the reader for the kind of `source`.
std::unique_ptr<WeightReader> open_weights(const CheckpointSource& source);

}  // namespace megatron
