// The largest scores of attention's heads, and the factors of QK clip, which scale them.
#include "megatron/nn/self_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

/// Scores are products of queries and keys, so that scaling both sides by η^α and η^(1 − α) scales
/// the scores of a group by η, whatever the other groups do.
TEST(SelfAttention, RowFactorsScaleTheScoresOfTheirGroup) {
  for (const bool is_gated : {false, true}) {
    TransformerConfig config;
    config.num_layers = 1;
    config.hidden_size = 8;
    config.num_attention_heads = 4;
    config.group_query_attention = true;
    config.num_query_groups = 2;
    config.kv_channels = 4;
    config.attention_output_gate = is_gated;
    config.position_embedding_type = PositionEmbedding::none;
    config.attention_dropout = 0;
    config.add_bias_linear = false;
    config.init_method_std = 1;
    const Rank rank;
    BareModule root;
    SelfAttention attention(&root, "self_attention", {.config = config, .rank = rank});
    ParamStore store(declared_parameters(root), {.dtype = at::kDouble});
    store.initialize(1);
    const at::NoGradGuard no_grad;
    const auto largest = [&] {
      attention.record_max_scores();
      attention.forward(random_input({5, 2, 8}).detach(), {});
      const at::Tensor scores = attention.take_max_scores();
      return std::vector<float>(scores.data_ptr<float>(), scores.data_ptr<float>() + 4);
    };
    const std::vector<float> before = largest();
    for (const auto& [weight, factors] : attention.row_factors({0.25, 1}, 0.3))
      weight.value().mul_(factors.unsqueeze(1));
    const std::vector<float> after = largest();
    for (std::size_t head = 0; head < 4; ++head)
      EXPECT_NEAR(after[head], before[head] * (head < 2 ? 0.25 : 1), 1e-6 * std::abs(before[head]));
  }
}

}  // namespace
}  // namespace megatron
