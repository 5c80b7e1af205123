// A small GPT with random weights whose attention is far from uniform.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "megatron/config/resolve.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"

namespace megatron {

struct SmallModel {
  static constexpr std::int64_t kVocabSize = 61;

  explicit SmallModel(std::uint64_t seed = 7, std::int64_t mtp_depths = 0,
                      std::int64_t vocab_size = kVocabSize, std::int64_t learned_positions = 0)
      : model(make_gpt_model(config(mtp_depths, vocab_size, learned_positions), Rank{})),
        weights(declared_parameters(*model), {.dtype = c10::kBFloat16, .with_gradients = false}) {
    weights.initialize(seed);
  }
  static TransformerConfig config(std::int64_t mtp_depths, std::int64_t vocab_size,
                                  std::int64_t learned_positions) {
    TransformerConfig config;
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.vocab_size = vocab_size;
    config.mtp_num_layers = mtp_depths;
    config.init_method_std = 0.3;
    config.position_embedding_type =
        learned_positions > 0 ? PositionEmbedding::learned_absolute : PositionEmbedding::rope;
    if (learned_positions > 0) config.max_position_embeddings = learned_positions;
    config.group_query_attention = true;
    config.num_query_groups = 2;
    config.window_size = {150, 0};
    set_windows(config, {1, 0});
    resolve(config);
    return config;
  }
  std::unique_ptr<Model> model;
  ParamStore weights;
};

inline std::vector<std::int64_t> random_ids(std::mt19937& random, std::int64_t count,
                                            std::int64_t vocab_size = SmallModel::kVocabSize) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random()) % vocab_size;
  return ids;
}

}  // namespace megatron
