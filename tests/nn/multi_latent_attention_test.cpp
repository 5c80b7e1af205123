// Multi-latent attention against DeepSeek-V2's formulas (§2.1) and central differences in float64,
// and what recomputation must not change.
#include "megatron/nn/multi_latent_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/ops/rotary.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kLength = 5, kSamples = 2;

TransformerConfig small_config(std::int64_t q_lora_rank, bool has_norms) {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 8;
  config.num_attention_heads = 3;
  config.multi_latent_attention = true;
  config.q_lora_rank = q_lora_rank;
  config.kv_lora_rank = 6;
  config.qk_head_dim = 5;
  config.qk_pos_emb_head_dim = 4;
  config.v_head_dim = 2;
  config.qk_layernorm = has_norms;
  config.normalization = Normalization::RMSNorm;
  config.norm_epsilon = 1e-3;
  config.add_bias_linear = false;
  config.hidden_dropout = config.attention_dropout = 0;
  config.rope_scaling_type = RopeScaling::yarn;
  config.rope_scaling_factor = 4;
  config.rope_original_max_position_embeddings = 8;
  config.yarn_mscale = 0.7;
  config.yarn_mscale_all_dim = 0.5;
  return config;
}

struct Block {
  explicit Block(const TransformerConfig& model)
      : config(model),
        attention(&root, "self_attention", {.config = config, .rank = rank}),
        store(declared_parameters(root), {.dtype = at::kDouble}) {
    store.initialize(1);
    int phase = 0;
    for (Parameter* parameter : declared_parameters(root)) {
      at::Tensor value = parameter->value();
      value.copy_(random_input(value.sizes(), 0.6, phase++).detach());
      weights[parameter->name()] = value;
    }
    const RotaryTables tables =
        rotary_tables(rotary_frequencies(config), at::arange(kLength, at::kLong), at::kDouble);
    context.rotary_cos = tables.cos;
    context.rotary_sin = tables.sin;
  }
  const at::Tensor& weight(const std::string& name) const {
    return weights.at("self_attention." + name);
  }

  Rank rank;
  TransformerConfig config;
  BareModule root;
  MultiLatentAttention attention;
  ParamStore store;
  std::map<std::string, at::Tensor> weights;
  ForwardContext context;
};

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x * (x.square().mean(-1, true) + 1e-3).rsqrt() * weight;
}

/// Rotates the pairs (2i, 2i + 1) of x [s, b, n, r].
at::Tensor rotated(const at::Tensor& x, const ForwardContext& context) {
  const at::Tensor cos = context.rotary_cos.view({kLength, 1, 1, -1}),
                   sin = context.rotary_sin.view({kLength, 1, 1, -1});
  const at::Tensor pairs = x.unflatten(-1, {-1, 2}), a = pairs.select(-1, 0),
                   b = pairs.select(-1, 1);
  return at::stack({a * cos - b * sin, b * cos + a * sin}, -1).flatten(-2);
}

at::Tensor textbook(const Block& block, const at::Tensor& x) {
  const TransformerConfig& c = block.config;
  const auto projected = [&](const at::Tensor& rows, const std::string& name) {
    return at::matmul(rows, block.weight(name + ".weight").t());
  };
  const auto normed = [&](const at::Tensor& latent, const std::string& name) {
    return c.qk_layernorm ? rms_norm(latent, block.weight(name + ".layer_norm_weight")) : latent;
  };
  const std::int64_t n = c.num_attention_heads;
  const at::Tensor q =
      (c.q_lora_rank > 0 ? projected(normed(projected(x, "linear_q_down_proj"), "linear_q_up_proj"),
                                     "linear_q_up_proj")
                         : projected(x, "linear_q_proj"))
          .view({kLength, kSamples, n, c.qk_head_dim + c.qk_pos_emb_head_dim});
  const at::Tensor down = projected(x, "linear_kv_down_proj");
  const at::Tensor kv = projected(normed(down.narrow(-1, 0, c.kv_lora_rank), "linear_kv_up_proj"),
                                  "linear_kv_up_proj")
                            .view({kLength, kSamples, n, c.qk_head_dim + c.v_head_dim});
  const at::Tensor shared =
      rotated(down.narrow(-1, c.kv_lora_rank, c.qk_pos_emb_head_dim).unsqueeze(2), block.context)
          .expand({kLength, kSamples, n, c.qk_pos_emb_head_dim});
  const at::Tensor query =
      at::cat({q.narrow(-1, 0, c.qk_head_dim),
               rotated(q.narrow(-1, c.qk_head_dim, c.qk_pos_emb_head_dim), block.context)},
              -1);
  const at::Tensor key = at::cat({kv.narrow(-1, 0, c.qk_head_dim), shared}, -1);
  const double mscale = 0.1 * c.yarn_mscale_all_dim * std::log(c.rope_scaling_factor) + 1;
  const auto heads_first = [](const at::Tensor& t) { return t.permute({1, 2, 0, 3}); };
  const at::Tensor scores =
      at::matmul(heads_first(query), heads_first(key).transpose(2, 3)) *
      (mscale * mscale / std::sqrt(static_cast<double>(c.qk_head_dim + c.qk_pos_emb_head_dim)));
  const at::Tensor hidden = at::full({kLength, kLength}, true, at::kBool).triu(1);
  const at::Tensor p =
      at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  const at::Tensor out = at::matmul(p, heads_first(kv.narrow(-1, c.qk_head_dim, c.v_head_dim)));
  return projected(out.permute({2, 0, 1, 3}).flatten(2), "linear_proj");
}

TEST(MultiLatentAttention, EqualsTheFormulas) {
  for (const std::int64_t q_lora_rank : {0, 7}) {
    for (const bool has_norms : {false, true}) {
      SCOPED_TRACE("rank " + std::to_string(q_lora_rank) + (has_norms ? " with norms" : ""));
      Block block(small_config(q_lora_rank, has_norms));
      const at::Tensor x = random_input({kLength, kSamples, 8});
      EXPECT_LT(difference(block.attention.forward(x, block.context), textbook(block, x)), 1e-13);
      check_gradients([&] { return weighted_sum(block.attention.forward(x, block.context)); }, {x},
                      &block.store);
    }
  }
}

TEST(MultiLatentAttention, HasTheNamesOfTransformerEngine) {
  const Block block(small_config(7, true)), plain(small_config(0, true));
  const std::vector<std::string> common{
      "input_layernorm.weight",
      "self_attention.linear_kv_down_proj.weight",
      "self_attention.linear_kv_up_proj.layer_norm_weight",
      "self_attention.linear_kv_up_proj.weight",
      "self_attention.linear_proj.weight",
  };
  const auto names = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    std::ranges::sort(more);
    return more;
  };
  const auto names_of = [](const Block& one) {
    std::vector<std::string> found;
    for (const auto& [name, value] : one.weights) found.push_back(name);
    return found;
  };
  EXPECT_EQ(names_of(block), names({"self_attention.linear_q_down_proj.weight",
                                    "self_attention.linear_q_up_proj.layer_norm_weight",
                                    "self_attention.linear_q_up_proj.weight"}));
  EXPECT_EQ(names_of(plain), names({"self_attention.linear_q_proj.weight"}));
}

/// The result and all gradients, with the nodes recomputed.
std::vector<at::Tensor> pass(Block& block, const NodeSet& recomputed) {
  const LayerPolicy policy{.recomputed = recomputed};
  ForwardContext context = block.context;
  context.policy = &policy;
  block.store.zero_gradients();
  const at::Tensor x = random_input({kLength, kSamples, 8});
  const at::Tensor y = block.attention.forward(x, context);
  weighted_sum(y).backward();
  std::vector<at::Tensor> all{y.detach(), x.grad()};
  for (Parameter* parameter : declared_parameters(block.root))
    all.push_back(parameter->grad().clone());
  return all;
}

TEST(MultiLatentAttention, RecomputedProjectionsHaveTheSameBits) {
  for (const std::int64_t q_lora_rank : {0, 7}) {
    Block block(small_config(q_lora_rank, true));
    const auto kept = pass(block, {}), again = pass(block, {LayerNode::mla_up_proj});
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], again[i])) << i;
  }
}

// All heads share the rotated key, which QK clip leaves alone, and every score of a head is scaled.
TEST(MultiLatentAttention, RowFactorsScaleTheScoresOfTheirHead) {
  for (const std::int64_t q_lora_rank : {0, 7}) {
    Block block(small_config(q_lora_rank, true));
    const at::NoGradGuard no_grad;
    const auto largest = [&] {
      block.attention.record_max_scores();
      block.attention.forward(random_input({kLength, kSamples, 8}).detach(), block.context);
      return block.attention.take_max_scores();
    };
    const at::Tensor before = largest();
    const std::vector<double> eta{0.25, 1, 0.5};
    for (const auto& [weight, factors] : block.attention.row_factors(eta, 0.3))
      weight.value().mul_(factors.unsqueeze(1));
    const at::Tensor after = largest();
    for (std::int64_t head = 0; head < 3; ++head) {
      const double expected = before[head].item<double>() * eta[static_cast<std::size_t>(head)];
      EXPECT_NEAR(after[head].item<double>(), expected, 1e-6 * std::abs(expected)) << head;
    }
  }
}

TEST(MultiLatentAttention, HasGradientsOfSinks) {
  TransformerConfig config = small_config(7, true);
  config.softmax_type = SoftmaxType::learnable;
  config.attn_logit_softcapping = 2;
  config.attention_chunk_size = 3;
  Block block(config);
  ASSERT_TRUE(block.weights.contains("self_attention.core_attention.softmax_offset"));
  const at::Tensor x = random_input({kLength, kSamples, 8});
  check_gradients([&] { return weighted_sum(block.attention.forward(x, block.context)); }, {x},
                  &block.store);
}

}  // namespace
}  // namespace megatron
