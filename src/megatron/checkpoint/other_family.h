// Starts a model of one family from the weights of another whose blocks are the same.
#pragma once

#include <string>

#include "megatron/checkpoint/checkpoint_source.h"

namespace megatron {

/// Returns `source` as a checkpoint of the family `family`: its layers are spelled as that family
/// has them, its weights have other names, and the optimizer's state is left out. Throws a
/// UserError when the family does not have such blocks, and for a Hugging Face directory.
CheckpointSource in_family(CheckpointSource source, const std::string& family);

}  // namespace megatron
