// --load decides the architecture: what is stored there, and which flags may still differ.
#pragma once

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/command_line.h"

namespace megatron {

/// The architecture of a run that starts from `source`: shapes and forward function are the source's, and a flag that contradicts them is a
/// UserError naming all such members; training knobs come from the flag if given, else from the source if it decides them, else from the
/// flag's default.
TransformerConfig merge_architecture(const TransformerConfig& flags, const Parsed& parsed, const CheckpointSource& source);

}  // namespace megatron
