#include "megatron/params/weight_init.h"

#include <cmath>

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

}  // namespace megatron
