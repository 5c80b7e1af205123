#include "megatron/params/weight_init.h"

#include <cmath>
#include <utility>

#include "megatron/config/transformer_config.h"

namespace megatron {

Init embedding_init(const TransformerConfig& config) {
  if (config.embedding_init_method_std) return Init::normal(*config.embedding_init_method_std);
  if (config.init_method_xavier_uniform)
    return Init::xavier_uniform(config.hidden_size, config.vocab_size);
  return Init::normal(config.init_method_std);
}

Init input_init(const TransformerConfig& config, const Shape& shape) {
  return config.init_method_xavier_uniform ? Init::xavier_uniform(shape[1], shape[0])
                                           : Init::normal(config.init_method_std);
}

Init residual_init(const TransformerConfig& config, const Shape& shape) {
  if (config.init_method_xavier_uniform) return Init::xavier_uniform(shape[1], shape[0]);
  const double blocks_of_layer = config.hybrid_layer_pattern.empty() ? 2.0 : 1.0;
  return Init::normal(config.init_method_std /
                      std::sqrt(blocks_of_layer * static_cast<double>(config.num_layers)));
}

ParameterSpec input_weight_spec(const TransformerConfig& config, Sharding sharding) {
  const Init init = input_init(config, sharding.global_shape);
  return {.sharding = std::move(sharding), .init = init, .tags = {}};
}

ParameterSpec gemm_weight_spec(const TransformerConfig& config, Sharding sharding) {
  ParameterSpec spec = input_weight_spec(config, std::move(sharding));
  spec.tags.packing = WeightPacking::in_place;
  return spec;
}

ParameterSpec bias_spec(Sharding sharding) {
  return {.sharding = std::move(sharding), .init = Init::zeros(), .tags = {.no_decay = true}};
}

}  // namespace megatron
