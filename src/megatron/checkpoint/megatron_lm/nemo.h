// NeMo 2's checkpoints: a folder with weights/, in the format torch_dist, and context/, the Python
// objects that made them, of which model.yaml has the settings of the model.
#pragma once

#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/formats/pickle.h"

namespace megatron {

bool is_nemo_folder(const std::filesystem::path& folder);
/// Returns whether `weights` is the weights/ of such a folder.
bool is_nemo_weights(const std::filesystem::path& weights);

/// Throws a UserError that begins with `flag` for what NeMo 1 saved: an archive, or its content.
void refuse_nemo_1(const std::filesystem::path& path, const std::string& flag);

/// Returns the name that Megatron-LM would have given a tensor: without "module.".
std::string without_module(std::string name);

/// Fills everything but tensors, the progress from `state`, that of Lightning's trainer. Returns
/// what the model declares, whose embedding has `vocab_size` rows. UserErrors name the file.
DeclaredTensors describe_nemo(const std::filesystem::path& weights, const PickleValue& state,
                              std::int64_t vocab_size, Manifest& manifest);

/// Adds the tokenizer of context/ and a note that says what was found.
void add_nemo_tokenizer(CheckpointSource& source);

}  // namespace megatron
