// Starts a model of one family from the weights of another whose blocks are the same.
#pragma once

#include "megatron/checkpoint/checkpoint_source.h"

namespace megatron {

/// Returns `source` as a checkpoint of the family `family`, whose model has the layers of `target`:
/// its weights have other names, and the optimizer's state is left out. Throws a UserError when the
/// blocks differ, and for a Hugging Face directory.
CheckpointSource in_family(CheckpointSource source, const std::string& family,
                           const TransformerConfig& target);

}  // namespace megatron
