// GPT, and models of one-block layers, as data (model_spec.h). Parameter names are Megatron Core's
// in the Transformer Engine spelling.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "megatron/models/model_spec.h"

namespace megatron {

/// Returns the blocks of a layer by its kind: attention or a gated delta net, cross attention in
/// the decoder of an encoder, then an MLP or experts; or one of them, or a Mamba-2 mixer.
std::vector<BlockSpec> decoder_blocks(const LayerKind& kind, std::int64_t layer);
/// Returns the declaration of the word embeddings, which the stages that have them share.
ParameterSpec word_embeddings(const PartArguments& arguments);
/// Declares the weight of an output layer: the word embeddings', or its own below `name`.
ParameterModule output_weight(const PartArguments& arguments, std::string_view name);
/// Returns the projection onto the vocabulary, whose weight is the word embeddings' or its own,
/// with the name of the output layer.
std::unique_ptr<Head> make_output_layer(const PartArguments& arguments, std::string_view name);
/// Returns make_output_layer() with the name "output_layer".
std::unique_ptr<Head> make_language_model_head(const PartArguments& arguments);

ModelSpec gpt_spec(const TransformerConfig& config);
/// The decoder of --hybrid-layer-pattern. Its last norm is decoder.final_norm, as in
/// megatron-core's HybridStack.
ModelSpec hybrid_spec(const TransformerConfig& config);

}  // namespace megatron
