#include "checkpoint/tiny_run.h"

#include <ATen/ops/rand_like.h>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"

namespace megatron {

TransformerConfig tiny_llama() {
  TransformerConfig model;
  model.num_layers = 2;
  model.hidden_size = 16;
  model.num_attention_heads = 4;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.ffn_hidden_size = 24;
  model.vocab_size = 19;
  model.max_position_embeddings = 32;
  model.normalization = Normalization::RMSNorm;
  model.position_embedding_type = PositionEmbedding::rope;
  model.activation = Activation::silu;
  model.gated_linear_unit = true;
  model.add_bias_linear = false;
  model.untie_embeddings_and_output_weights = true;
  resolve(model);
  return model;
}

TinyRun::TinyRun(std::uint64_t seed, const TransformerConfig& config, const std::string& name) {
  settings.model = config;
  settings.optimizer->optimizer = name;
  model = make_gpt_model(config, Rank{});
  store = std::make_unique<ParamStore>(declared_parameters(*model), ParamStore::Options{});
  store->initialize(seed);
  optimizer = make_optimizer(*settings.optimizer, *store);
  optimizer->visit_state([&](const ParameterPiece& piece, const std::string&, at::Tensor& tensor) {
    const std::int64_t true_size =
        num_elements(piece.parameter->sharding().global_shape);  // vocabulary padding stays zero
    tensor.narrow(0, 0, true_size)
        .copy_(at::rand_like(tensor).add_(static_cast<double>(seed)).narrow(0, 0, true_size));
  });
  optimizer->set_num_steps(static_cast<std::int64_t>(seed));
}

SaveRequest TinyRun::request(std::int64_t iteration) const {
  return {.model = &*settings.model,
          .settings = &settings,
          .weights = store.get(),
          .optimizer = optimizer.get(),
          .progress = {.iteration = iteration,
                       .consumed_train_samples = 8 * iteration,
                       .floating_point_operations = 1e21 / 3}};
}

std::vector<at::Tensor> TinyRun::tensors() const {
  std::vector<at::Tensor> all;
  for (const Parameter* parameter : store->parameters()) all.push_back(parameter->value());
  optimizer->visit_state([&](const ParameterPiece&, const std::string&, at::Tensor& tensor) {
    all.push_back(tensor);
  });
  return all;
}

}  // namespace megatron
