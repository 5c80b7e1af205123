#include "support/tiny_gpt.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {

TransformerConfig tiny_gpt() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 12;
  config.num_attention_heads = config.num_query_groups = 4;
  config.kv_channels = 4;
  config.ffn_hidden_size = 20;
  config.max_position_embeddings = 8;
  config.vocab_size = 13;
  config.hidden_dropout = 0.2;
  config.attention_dropout = 0.3;
  return config;
}

void make_llama(TransformerConfig& config) {
  config.normalization = Normalization::RMSNorm;
  config.position_embedding_type = PositionEmbedding::rope;
  config.activation = Activation::silu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.untie_embeddings_and_output_weights = true;
  config.group_query_attention = true;
  config.num_query_groups = 2;
}

Microbatch patterned_batch(std::int64_t b, std::int64_t s, std::int64_t vocab) {
  Microbatch microbatch;
  const at::Tensor tokens = (at::arange(b * (s + 1)) * 7 % vocab).view({b, s + 1});
  microbatch.tensors["tokens"] = tokens.narrow(1, 0, s).contiguous();
  microbatch.tensors["labels"] = tokens.narrow(1, 1, s).contiguous();
  microbatch.tensors["loss_mask"] = at::ones({b, s}, at::kFloat);
  microbatch.tensors["position_ids"] = at::arange(s).unsqueeze(0);
  microbatch.sample_ordinals = at::arange(b) + 5;
  return microbatch;
}

}  // namespace megatron
