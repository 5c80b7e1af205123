// The part of Megatron-LM's checkpoints that is no tensor: args, iteration, schedule, step counts.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "megatron/base/json_fwd.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/formats/torch_file.h"

namespace megatron {

struct CheckpointSource;
struct Settings;

/// Fills everything but tensors from the state dict that Megatron-LM saved, or a list that holds
/// it. `vocab_size` is the number of rows of the embedding: Megatron-LM computes with its padding.
/// Returns what the model of the args declares. UserErrors name `source` and the entry.
DeclaredTensors describe_saved_args(const PickleValue& state, std::int64_t vocab_size,
                                    const std::string& source, Manifest& manifest);

/// The same for the args alone. Of the optimizer it fills the name.
DeclaredTensors describe_args(const PickleValue& args, std::int64_t vocab_size,
                              const std::string& source, Manifest& manifest);

/// The same for settings, which are resolved, without progress.
DeclaredTensors describe_settings(Settings& settings, std::int64_t vocab_size, Manifest& manifest);

/// Fills the steps of the optimizer of a state dict, or removes the optimizer if there is none.
void describe_optimizer(const PickleValue& state, Manifest& manifest);

/// Returns an integer of a state dict, or 0 if there is none.
std::int64_t saved_count(const PickleValue& of, const char* key);

/// What decides the part that is no tensor when Megatron-LM's checkpoint is written.
struct CommonState {
  const CheckpointSource& source;
  at::ScalarType weight_type = at::kFloat;
  bool layers_are_alike = true;  ///< Megatron then stacks them
  bool has_optimizer = false;
};

/// Returns that part as pickle_of() takes it: args under the names of Megatron's argparse, the
/// iteration, the schedule and the groups of the optimizer.
Json common_state_of(const CommonState& state);

/// Returns the type of a tensor. Throws a UserError that names `place` for types of no weight.
SafetensorsDtype safetensors_dtype(const TorchDtype& dtype, const std::string& place);

}  // namespace megatron
