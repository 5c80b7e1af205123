// Expected bytes are worked out by hand from the shapes of the tensors that layers keep.
#include "megatron/planner/activation_memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/planner/communication_volume.h"

namespace megatron {
namespace {

/// Two layers of width 64, the first dense and the second with 8 experts of width 32.
TransformerConfig two_kinds() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.num_attention_heads = 8;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.kv_channels = 8;
  config.ffn_hidden_size = 96;
  config.gated_linear_unit = true;
  config.normalization = Normalization::RMSNorm;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 32;
  set_experts(config, {0, 1});
  return config;
}

const ActivationLayout kOneRank{.tokens = 10, .element_bytes = 2};

/// Of one token in two_kinds(): 4·h for norms and GEMM inputs and one rstd per norm; q, k, v, a
/// copy of q, the result, and one log-sum-exp per head.
constexpr double kHiddenBytes = 2 * 4 * 64 + 2 * 4,
                 kAttentionBytes = 2 * (64 + 16 + 16 + 64 + 64) + 4 * 8;

TEST(LayerActivations, OfADenseLayer) {
  const double mlp = 2 * 2 * 96;
  EXPECT_EQ(layer_activation_bytes(two_kinds(), 0, kOneRank),
            10 * (kHiddenBytes + kAttentionBytes + mlp));
  TransformerConfig layer_norm = two_kinds();
  layer_norm.normalization = Normalization::LayerNorm;  // keeps means too
  EXPECT_EQ(layer_activation_bytes(layer_norm, 0, kOneRank) -
                layer_activation_bytes(two_kinds(), 0, kOneRank),
            10 * 2 * 4);
}

double attention_bytes(const TransformerConfig& config, const ActivationLayout& layout) {
  return layer_activations(config, 0, layout).attention();
}

TEST(LayerActivations, OfRotaryPositionsAndNormsOfHeads) {
  TransformerConfig config = two_kinds();
  const double plain = attention_bytes(config, kOneRank);
  config.position_embedding_type = PositionEmbedding::rope;
  EXPECT_EQ(attention_bytes(config, kOneRank) - plain, 10 * 2 * 16) << "rotated keys";
  config.qk_layernorm = true;
  const double inputs = 2 * 16, results = 2 * (64 + 16), statistics = 4 * (8 + 2);
  EXPECT_EQ(attention_bytes(config, kOneRank) - plain, 10 * (inputs + results + statistics));
  config.qk_layernorm_scope = QkNormScope::all_heads;
  const double normed = attention_bytes(config, kOneRank);
  EXPECT_EQ(normed - plain, 10 * (inputs + results + 4 * 2));
  config.clip_qkv = 1;
  EXPECT_EQ(attention_bytes(config, kOneRank) - normed, 10 * 2 * (64 + 16 + 16));
  ActivationLayout halves = kOneRank;
  halves.tensor_parallel = 2;
  const double hidden = 10 * kHiddenBytes, statistics_of_all = 10 * 4 * 2;
  EXPECT_EQ(attention_bytes(config, halves) - hidden - statistics_of_all,
            (attention_bytes(config, kOneRank) - hidden - statistics_of_all) / 2)
      << "each rank keeps the statistics of all heads";
  config = two_kinds();
  config.group_query_attention = false;
  EXPECT_EQ(attention_bytes(config, kOneRank) - plain,
            10 * 2 * (4 * 64 - (64 + 16 + 16 + 64 + 64)));
}

// Of one token: a latent before and after its norm, with one rstd; q and k of 8 heads with 12
// channels, the projection of 8 · (8 + 6) of which v is a view, the result, and log-sum-exps.
TEST(LayerActivations, OfLatentAttention) {
  TransformerConfig config = two_kinds();
  config.multi_latent_attention = config.qk_layernorm = true;
  config.kv_lora_rank = 10;
  config.qk_head_dim = 8;
  config.qk_pos_emb_head_dim = 4;
  config.v_head_dim = 6;
  resolve_layers(config);
  const double heads = 2 * 8 * (12 + 12 + 8 + 6), rest = 2 * 20 + 4 + 2 * 8 * 6 + 8 * 4;
  EXPECT_EQ(attention_bytes(config, kOneRank), 10 * (kHiddenBytes + heads + rest));
  const LayerActivations parts = layer_activations(config, 0, kOneRank);
  EXPECT_EQ(kept_activations(parts, {LayerNode::mla_up_proj}).attention(),
            10 * (kHiddenBytes + rest));
}

// Of the attention of two_kinds() over 4 ranks of cp, per token of a rank: heads and groups of 8
// channels in bf16, and the log-sum-exp.
TEST(LayerActivations, OfExchangedKeys) {
  ActivationLayout layout = kOneRank;
  layout.context_parallel = 4;
  const auto heads_kept = [&](CpCommType exchange) {
    TransformerConfig config = two_kinds();
    set_comm_types(config, {exchange});
    const double statistics = 10 * (kHiddenBytes + 4 * 8);
    return (attention_bytes(config, layout) - statistics) / (10 * 2 * 8);
  };
  EXPECT_EQ(heads_kept(CpCommType::p2p), 8 + 2 + 2 + 8 + 8) << "q|k|v, a copy of q, the result";
  EXPECT_EQ(heads_kept(CpCommType::all_gather), 8 + 4 * (2 + 2) + 2 * 8)
      << "q, all keys and values, the results of two chunks and both together";
  EXPECT_EQ(heads_kept(CpCommType::a2a), 8 + 4 + 4 + 2 * 8) << "a group for each rank";
  layout.context_head_ranks = 2;
  EXPECT_EQ(heads_kept(CpCommType::a2a_p2p), 8 + 2 + 2 + 2 * 8);
  TransformerConfig mixed = two_kinds();
  set_comm_types(mixed, {CpCommType::p2p, CpCommType::a2a});
  EXPECT_EQ(layer_activation_bytes(mixed, 0, layout),
            layer_activation_bytes(two_kinds(), 0, kOneRank));
  EXPECT_EQ(
      layer_activation_bytes(mixed, 1, layout) - layer_activation_bytes(two_kinds(), 1, kOneRank),
      10 * 2 * 8 * (32 - 28));
}

TEST(LayerActivations, OfExperts) {
  const double row = 2 * (64 + 2 * 32) + 4, router = 4 * 8;
  EXPECT_EQ(layer_activation_bytes(two_kinds(), 1, kOneRank),
            10 * (kHiddenBytes + kAttentionBytes + 2 * row + router));
}

TEST(LayerActivations, SharedExpertsAddADenseMlp) {
  TransformerConfig config = two_kinds();
  config.moe.shared_expert_intermediate_size = 48;
  EXPECT_EQ(moe_activation_bytes(config, kOneRank) - moe_activation_bytes(two_kinds(), kOneRank),
            10 * 2 * 2 * 48);
}

TEST(LayerActivations, LatentExpertsDispatchNarrowRows) {
  TransformerConfig config = two_kinds();
  config.moe.latent_size = 16;
  const double narrower = 2 * (64 - 16), combined = 2 * 16;
  EXPECT_EQ(moe_activation_bytes(two_kinds(), kOneRank) - moe_activation_bytes(config, kOneRank),
            10 * (2 * narrower - combined));
}

TEST(LayerActivations, AreDividedOverTensorRanks) {
  ActivationLayout layout = kOneRank;
  layout.tensor_parallel = 2;
  EXPECT_EQ(layer_activation_bytes(two_kinds(), 0, layout),
            10 * (kHiddenBytes + kAttentionBytes / 2 + 2 * 2 * 96 / 2.0));
  layout.sequence_parallel = true;
  EXPECT_EQ(layer_activation_bytes(two_kinds(), 0, layout),
            10 * (kHiddenBytes + kAttentionBytes + 2 * 2 * 96) / 2);
}

// Experts of one rank each take the rows of a half of the tokens; experts that two ranks divide
// take the rows of all tokens and half the width.
TEST(ExpertRows, DependOnBothTensorParallelSizes) {
  ActivationLayout layout = kOneRank;
  layout.tensor_parallel = 2;
  layout.sequence_parallel = true;
  EXPECT_EQ(expert_rows(two_kinds().moe, layout), 10);
  EXPECT_EQ(moe_activation_bytes(two_kinds(), layout), 10 * (2 * (64 + 2 * 32) + 4) + 5 * 4 * 8);
  layout.expert_tensor_parallel = 2;
  EXPECT_EQ(expert_rows(two_kinds().moe, layout), 20);
  const double kept = moe_activation_bytes(two_kinds(), layout);
  EXPECT_EQ(kept, 20 * (2 * (64 + 32) + 4) + 5 * 4 * 8);
  layout.sequence_parallel = false;
  EXPECT_EQ(moe_activation_bytes(two_kinds(), layout) - kept, 5 * 2 * 64)
      << "the rank's part of the input";
}

TEST(DispatchBytes, OfAllToAllLeaveOutTheRanksOwnRows) {
  TransformerConfig config = two_kinds();
  config.moe.token_dispatcher_type = TokenDispatcherType::alltoall;
  EXPECT_EQ(dispatch_bytes(config, 1, kOneRank), 0);
  EXPECT_EQ(dispatch_bytes(config, 4, kOneRank), 10 * 2 * 64 * 2 * 3.0 / 4);
  ActivationLayout layout = kOneRank;
  layout.tensor_parallel = layout.expert_tensor_parallel = 2;
  EXPECT_EQ(dispatch_bytes(config, 1, layout), 5 * 2 * 64 * 2) << "the rows of the other etp rank";
  config.moe.latent_size = 16;
  EXPECT_EQ(dispatch_bytes(config, 4, kOneRank), 10 * 2 * 16 * 2 * 3.0 / 4);
}

TEST(DispatchBytes, OfAllGatherAreTheTokensForEveryOtherRank) {
  TransformerConfig config = two_kinds();
  config.moe.token_dispatcher_type = TokenDispatcherType::allgather;
  EXPECT_EQ(dispatch_bytes(config, 4, kOneRank), 10 * 64 * 2 * 3);
  ActivationLayout layout = kOneRank;
  layout.tensor_parallel = layout.expert_tensor_parallel = 2;
  EXPECT_EQ(dispatch_bytes(config, 4, layout), 5 * 64 * 2 * 7);
}

// The keys and values of a rank are 10 tokens of 2 groups of 8 channels each, in bf16.
TEST(ContextBytes, OfEachExchange) {
  constexpr double kKeys = 2 * 10 * 2 * 8 * 2, kQueries = 10 * 8 * 8 * 2;
  ActivationLayout layout = kOneRank;
  EXPECT_EQ(context_bytes(two_kinds(), CpCommType::p2p, layout), 0);
  layout.context_parallel = 4;
  EXPECT_EQ(context_bytes(two_kinds(), CpCommType::p2p, layout), 2 * 3 * kKeys + 4 * 2 * kKeys);
  EXPECT_EQ(context_bytes(two_kinds(), CpCommType::all_gather, layout), 2 * 3 * kKeys);
  EXPECT_EQ(context_bytes(two_kinds(), CpCommType::a2a, layout),
            2 * (2 * kQueries + 2 * kKeys) * 3 / 4)
      << "each of 4 ranks has its copy of one of 2 groups";
  layout.context_head_ranks = 2;
  EXPECT_EQ(context_bytes(two_kinds(), CpCommType::a2a_p2p, layout),
            2 * (2 * kQueries + kKeys) / 2 + 2 * kKeys + 2 * 2 * kKeys);
}

TEST(ActivationVolume, OfOneStepByAxis) {
  Settings settings;
  settings.model = two_kinds();
  settings.model->moe.token_dispatcher_type = TokenDispatcherType::alltoall;
  settings.parallel->pipeline_model_parallel_size = 2;
  settings.parallel->expert_model_parallel_size = 2;
  const ActivationLayout layout{
      .tokens = 10, .tensor_parallel = 2, .sequence_parallel = true, .element_bytes = 2};
  const CommunicationVolume volume = activation_volume(settings, layout, {0, 1}, 3);
  const double hidden = 10 * 64 * 2;
  // Two attentions and one dense MLP, forward and backward, each an all-reduce of 2·(n − 1)/n.
  EXPECT_EQ(volume.tensor, 3 * 3 * 2 * hidden);
  EXPECT_EQ(volume.pipeline, 3 * 2 * hidden / 2);
  EXPECT_EQ(volume.expert, 3 * 4 * (5 * 2 * 64 * 2 / 2.0));
  EXPECT_EQ(volume.total(), volume.tensor + volume.pipeline + volume.expert);
  settings.model->moe.shared_expert_intermediate_size = 16;
  EXPECT_EQ(activation_volume(settings, layout, {0, 1}, 3).tensor, 3 * 4 * 2 * hidden);
  ActivationLayout whole = layout;
  whole.sequence_parallel = false;
  EXPECT_EQ(activation_volume(settings, whole, {0, 1}, 3).tensor, 3 * 4.5 * 2 * hidden);
  settings.parallel->num_virtual_stages_per_pipeline_rank = 2;
  EXPECT_EQ(activation_volume(settings, layout, {0, 1}, 3).pipeline, 2 * volume.pipeline)
      << "each chunk sends its rows";
}

// Of 16 ranks on 2 hosts of 8, 2 links of the ring connect hosts, and 8 of each rank's 15 peers are
// on the other host.
TEST(ShareBetweenHosts, OfRingsAndOfAllPairs) {
  RankList all(16);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_DOUBLE_EQ(share_between_hosts(all, 8, false), 2.0 / 16);
  EXPECT_DOUBLE_EQ(share_between_hosts(all, 8, true), 8.0 / 15);
  EXPECT_EQ(share_between_hosts(all, 16, false), 0);
  EXPECT_EQ(share_between_hosts(all, 1, false), 1);
  EXPECT_DOUBLE_EQ(share_between_hosts({0, 4, 8, 12}, 8, true), 2.0 / 3);
  EXPECT_EQ(share_between_hosts({0, 8}, 8, false), 1);
  EXPECT_EQ(share_between_hosts({3}, 8, true), 0);
}

}  // namespace
}  // namespace megatron
