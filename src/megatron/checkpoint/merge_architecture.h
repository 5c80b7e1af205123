// Merges the architecture of a checkpoint with the flags of the run that loads it.
#pragma once

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/config/command_line.h"
#include "megatron/config/settings.h"

namespace megatron {

/// Returns the resolved architecture. `flags` are the parsed flags; `parsed` says which were given.
/// - Shapes and the forward function come from the source. One UserError lists all given flags that
///   contradict them.
/// - Training members come from the flag if given, else from the source if it sets them, else from
///   Megatron's default.
/// - Without learned positions, a given --max-position-embeddings wins.
TransformerConfig merge_architecture(const CheckpointSource& source, const TransformerConfig& flags,
                                     const ParseResult& parsed);

}  // namespace megatron
