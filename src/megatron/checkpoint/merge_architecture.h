// The architecture of a run that loads a checkpoint: the checkpoint's, with the training knobs of
// the flags.
#pragma once

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/command_line.h"
#include "megatron/config/settings.h"

namespace megatron {

/// `flags` as parsed, `parsed` says which were given. Shapes and forward function are the source's;
/// a given flag that contradicts them is an error, and all contradictions stand in one UserError.
/// Training members come from the flag if given, else from the source if it decides them, else
/// Megatron's default. Without learned positions a given --max-position-embeddings wins. The result
/// is resolved.
TransformerConfig merge_architecture(const CheckpointSource& source, const TransformerConfig& flags,
                                     const ParseResult& parsed);

}  // namespace megatron
