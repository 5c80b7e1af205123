// BERT (Devlin et al. 2018) as data (model_spec.h): a bidirectional encoder with heads for masked
// tokens and for the order of two sentences, or with one for classes. Parameter names are those of
// megatron-core's BertModel in the Transformer Engine spelling.
#pragma once

#include "megatron/models/model_spec.h"

namespace megatron {

/// The model reads megatron-core's fields: tokens, types, labels and loss_mask, and for the head of
/// two sentences is_random. With classes it reads tokens, types, position_ids and class.
ModelSpec bert_spec(const TransformerConfig& config);
/// Adds the fields that BERT reads besides GPT's.
void add_bert_fields(Microbatch& microbatch);

}  // namespace megatron
