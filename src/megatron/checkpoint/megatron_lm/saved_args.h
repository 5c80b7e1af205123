// The part of Megatron-LM's checkpoints that is no tensor: args, iteration, schedule, step counts.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/formats/torch_file.h"

namespace megatron {

/// Fills everything but tensors from the state dict that Megatron-LM saved, or a list that holds
/// it. `vocab_size` is the number of rows of the embedding: Megatron-LM computes with its padding.
/// Returns what the model of the args declares. UserErrors name `source` and the entry.
DeclaredTensors describe_saved_args(const PickleValue& state, std::int64_t vocab_size,
                                    const std::string& source, Manifest& manifest);

/// Returns an integer of a state dict, or 0 if there is none.
std::int64_t saved_count(const PickleValue& of, const char* key);

/// Returns the type of a tensor. Throws a UserError that names `place` for types of no weight.
SafetensorsDtype safetensors_dtype(const TorchDtype& dtype, const std::string& place);

}  // namespace megatron
