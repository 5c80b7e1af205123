// Merges the architecture of a checkpoint with the flags of the run that loads it, and starts a
// model of one family from the weights of another whose blocks are the same.
#pragma once

#include <string>

#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/command_line.h"

namespace megatron {

struct Settings;

/// What flags may replace of a checkpoint's architecture.
struct MergeOptions {
  /// Given flags may replace the frequencies of the rotary positions: base, scaling and YaRN's
  /// settings. No weight depends on them, so training can continue with others.
  bool replaces_rotary_frequencies = false;
};

/// Returns the resolved architecture. `flags` are the parsed flags; `parsed` says which were given.
/// - Shapes and the forward function come from the source. One UserError lists all given flags that
///   contradict them.
/// - Training members come from the flag if given, else from the source if it sets them, else from
///   Megatron's default. A dropout that a Hugging Face family does not have is 0 in the source.
/// - Without learned positions, a given --max-position-embeddings wins.
/// - Rotary frequencies are part of the forward function unless `options` say otherwise.
TransformerConfig merge_architecture(const CheckpointSource& source, const TransformerConfig& flags,
                                     const ParseResult& parsed, const MergeOptions& options = {});

/// Returns the notes of validate_model() on given flags, such as those without effect, which
/// merge_architecture() drops. `settings` hold the merged model.
Notes notes_on_flags(Settings settings, const TransformerConfig& flags, const ParseResult& parsed);

/// Returns "attention_dropout 0.1 (--attention-dropout), hidden_dropout 0 (the family has none),
/// …": the training members that the source sets, as merged, and where each comes from.
std::string training_origins(const CheckpointSource& source, const TransformerConfig& merged,
                             const ParseResult& parsed);

/// Returns "rope_scaling_type none there and llama3 now, …", the rotary frequencies in which
/// `merged` differs from the checkpoint's architecture; "" when they are equal.
std::string rotary_differences(const TransformerConfig& checkpoint,
                               const TransformerConfig& merged);

}  // namespace megatron
