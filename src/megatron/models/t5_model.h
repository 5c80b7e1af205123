// T5 (Raffel et al. 2020) as data (model_spec.h): a bidirectional encoder and a decoder whose
// layers attend to the encoder's rows. Parameter names are those of megatron-core's T5Model in the
// Transformer Engine spelling.
#pragma once

#include "megatron/models/model_spec.h"

namespace megatron {

/// The layers are those of `config` up to encoder_num_layers(), and the others. Both stacks and the
/// tied output layer share the embeddings. The model reads megatron-core's fields: text_enc,
/// enc_mask, text_dec, dec_mask (1 for tokens and 0 for padding), labels and loss_mask.
ModelSpec t5_spec(const TransformerConfig& config);
/// Adds the fields that T5 reads besides GPT's, with equally long texts.
void add_t5_fields(Microbatch& microbatch);

}  // namespace megatron
