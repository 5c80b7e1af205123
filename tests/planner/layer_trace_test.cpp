// Expected bytes are worked out by hand from the shapes of the tensors that layers keep and send.
#include "megatron/planner/layer_trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

using enum LayerNode;

/// Two layers of width 64, the first dense and the second with 8 experts of width 32; 10 tokens in
/// bf16.
Settings two_kinds() {
  Settings settings;
  TransformerConfig& config = *settings.model;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.num_attention_heads = 8;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.kv_channels = 8;
  config.ffn_hidden_size = 96;
  config.gated_linear_unit = true;
  config.normalization = Normalization::RMSNorm;
  config.vocab_size = 32;
  config.max_position_embeddings = 10;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 32;
  config.moe.token_dispatcher_type = TokenDispatcherType::alltoall;
  set_experts(config, {0, 1});
  settings.training->micro_batch_size = 1;
  settings.training->seq_length = 10;
  settings.training->bf16 = true;
  return settings;
}

LayerTrace trace_of(const Settings& settings, std::int64_t layer, const LayerPolicy& policy = {},
                    std::int64_t min_offloaded = 0, bool distributes = false) {
  const ParallelConfig& parallel = *settings.parallel;
  const MeshSizes sizes = mesh_sizes(parallel);
  const Rank rank =
      make_rank(Mesh(sizes, std::max(sizes.tp * sizes.cp, sizes.ep * sizes.expert_tp())), 0,
                {.sequence_parallel = parallel.sequence_parallel,
                 .cp_a2a_size = parallel.hierarchical_context_parallel_sizes.empty()
                                    ? 1
                                    : parallel.hierarchical_context_parallel_sizes.front()});
  return LayerTraces(find_model_family("gpt"))
      .of(settings, rank, layer,
          {.layers = std::vector<LayerPolicy>(static_cast<std::size_t>(settings.model->num_layers),
                                              policy),
           .distributes_saved_activations = distributes,
           .min_offloaded_elements = min_offloaded});
}

double kept(const Settings& settings, std::int64_t layer) {
  return trace_of(settings, layer).kept_bytes();
}

/// Of one token in two_kinds(): 4·h for norms and GEMM inputs and one rstd per norm; q, k, v, a
/// copy of q, the result, and one log-sum-exp per head.
constexpr double kHiddenBytes = 2 * 4 * 64 + 2 * 4,
                 kAttentionBytes = 2 * (64 + 16 + 16 + 64 + 64) + 4 * 8;

TEST(LayerTrace, OfADenseLayer) {
  const double mlp = 2 * 2 * 96;
  EXPECT_EQ(kept(two_kinds(), 0), 10 * (kHiddenBytes + kAttentionBytes + mlp));
  Settings layer_norm = two_kinds();
  layer_norm.model->normalization = Normalization::LayerNorm;  // keeps means too
  EXPECT_EQ(kept(layer_norm, 0) - kept(two_kinds(), 0), 10 * 2 * 4);
}

TEST(LayerTrace, FollowsTheNodesOfALayer) {
  const LayerTrace trace = trace_of(two_kinds(), 0);
  const double hidden = 10 * 2 * 64, rstd = 10 * 4;
  EXPECT_EQ(trace.kept_by({attn_norm}), hidden + rstd);
  EXPECT_EQ(trace.kept_by({qkv_linear}), hidden);
  EXPECT_EQ(trace.kept_by({core_attn}), 10 * kAttentionBytes);
  EXPECT_EQ(trace.kept_by({attn_proj}), 0) << "it reads the result of attention too";
  EXPECT_EQ(trace.kept_by({mlp_norm}), hidden + rstd);
  EXPECT_EQ(trace.kept_by({mlp}), hidden + 10 * 2 * 2 * 96) << "input, and the first GEMM's result";
  EXPECT_EQ(trace.kept_until(core_attn), 2 * hidden + rstd + 10 * kAttentionBytes);
  EXPECT_EQ(trace.kept_until(mlp), trace.kept_bytes());
}

// Rotary tables are shared by all layers.
TEST(LayerTrace, OfRotaryPositionsAndNormsOfHeads) {
  Settings settings = two_kinds();
  TransformerConfig& config = *settings.model;
  const double plain = kept(settings, 0);
  config.position_embedding_type = PositionEmbedding::rope;
  EXPECT_EQ(kept(settings, 0) - plain, 10 * 2 * 16) << "rotated keys";
  config.qk_layernorm = true;
  const double inputs = 2 * 16, results = 2 * (64 + 16), statistics = 4 * (8 + 2);
  EXPECT_EQ(kept(settings, 0) - plain, 10 * (inputs + results + statistics));
  config.qk_layernorm_scope = QkNormScope::all_heads;
  const double normed = kept(settings, 0);
  EXPECT_EQ(normed - plain, 10 * (inputs + results + 4 * 2));
  config.clip_qkv = 1;
  EXPECT_EQ(kept(settings, 0) - normed, 10 * 2 * (64 + 16 + 16));
  Settings ungrouped = two_kinds();
  ungrouped.model->group_query_attention = false;
  EXPECT_EQ(kept(ungrouped, 0) - plain, 10 * 2 * (4 * 64 - (64 + 16 + 16 + 64 + 64)));
}

// Per token: the projection's 168 rows, 96 channels behind the convolution, two gates of 4 heads in
// float32, and 64 channels before and behind the gated norm. Once: copies of small weights.
TEST(LayerTrace, OfAGatedDeltaNet) {
  Settings settings = two_kinds();
  settings.model->linear_attention = {
      .key_head_dim = 8, .value_head_dim = 16, .num_key_heads = 2, .num_value_heads = 4};
  set_linear_attention(*settings.model, {1, 0});
  const double mlp = 2 * 2 * 96, weights = 4 * (96 * 4 + 2 * 4 + 16);
  EXPECT_EQ(kept(settings, 0),
            10 * (kHiddenBytes + 2 * 168 + 2 * 96 + 4 * 2 * 4 + 2 * 2 * 64 + mlp) + weights);
  settings.parallel->tensor_model_parallel_size = 4;
  const LayerTrace divided = trace_of(settings, 0);  // two ranks share a group of queries and keys
  EXPECT_EQ(
      divided.kept_by({core_attn}),
      10 * (2 * (2 * 8 + 2 * 16 + 2) + 2 * (2 * 8 + 16) + 4 * 2 + 2 * 16) + 4 * (32 * 4 + 2 + 16));
  EXPECT_EQ(divided.kept_by({attn_proj}), 10 * 2 * 16);
}

// Per token of a rank of 4, heads and groups of 8 channels in bf16.
TEST(LayerTrace, OfExchangedKeys) {
  Settings settings = two_kinds();
  settings.training->seq_length = 40;
  settings.parallel->context_parallel_size = 4;
  const auto heads_kept = [&](CpCommType exchange) {
    settings.parallel->cp_comm_type = {exchange};
    set_comm_types(*settings.model, {exchange});
    const LayerTrace trace = trace_of(settings, 0);
    return (trace.kept_by({core_attn, attn_proj}) - 10 * 4 * 8) / (10 * 2 * 8);
  };
  EXPECT_EQ(heads_kept(CpCommType::p2p), 8 + 2 + 2 + 8 + 8) << "q|k|v, a copy of q, the result";
  EXPECT_EQ(heads_kept(CpCommType::all_gather), 8 + 4 * (2 + 2) + 2 * 8)
      << "q, all keys and values, the results of two chunks and both together";
  EXPECT_EQ(heads_kept(CpCommType::a2a), 8 + 4 + 4 + 2 * 8) << "a group for each rank";
  settings.parallel->hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(heads_kept(CpCommType::a2a_p2p), 8 + 2 + 2 + 2 * 8);
}

// A map of c copies of t tokens: three int32 and a byte for each copy, and an int32 for each token.
TEST(LayerTrace, OfExperts) {
  const LayerTrace trace = trace_of(two_kinds(), 1);
  const double map = 20 * 13 + 11 * 4, choices = 20 * 4;
  EXPECT_EQ(trace.kept_by({moe}), 10 * (2 * 64 + 4 * 8) + choices + map)
      << "the input and the logits of the router, its choices, and where rows go";
  EXPECT_EQ(trace.kept_by({expert_fc1}), 20 * 2 * 64);
  EXPECT_EQ(trace.kept_by({moe_act}), 20 * (2 * 2 * 32 + 4));
  EXPECT_EQ(trace.kept_by({shared_experts}), 0);
  Settings settings = two_kinds();
  settings.model->moe.shared_expert_intermediate_size = 48;
  EXPECT_EQ(kept(settings, 1) - trace.kept_bytes(), 10 * 2 * 2 * 48) << "as of a dense MLP";
}

TEST(LayerTrace, LatentExpertsDispatchNarrowRows) {
  Settings settings = two_kinds();
  settings.model->moe.latent_size = 16;
  const double narrower = 2 * (64 - 16), combined = 2 * 16;
  EXPECT_EQ(kept(two_kinds(), 1) - kept(settings, 1), 10 * (2 * narrower - combined));
}

TEST(LayerTrace, IsDividedOverTensorRanks) {
  Settings settings = two_kinds();
  settings.parallel->tensor_model_parallel_size = 2;
  // A rank has one group, whose queries lie one after another: attention reads a view of them.
  const double attention = kAttentionBytes - 2 * 64, mlp = 2 * 2 * 96;
  EXPECT_EQ(kept(settings, 0), 10 * (kHiddenBytes + (attention + mlp) / 2));
  settings.parallel->sequence_parallel = true;
  EXPECT_EQ(kept(settings, 0), 10 * (kHiddenBytes + attention + mlp) / 2);
}

// Experts of one rank each take the rows of a half of the tokens; experts that two ranks divide
// take the rows of all tokens and half the width.
TEST(LayerTrace, RowsOfExpertsDependOnBothTensorParallelSizes) {
  Settings settings = two_kinds();
  settings.parallel->tensor_model_parallel_size = 2;
  settings.parallel->sequence_parallel = true;
  settings.parallel->expert_tensor_parallel_size = 1;
  LayerTrace trace = trace_of(settings, 1);
  EXPECT_EQ(trace.kept_by({expert_fc1}), 10 * 2 * 64);
  EXPECT_EQ(trace.kept_by({moe_act}), 10 * (2 * 2 * 32 + 4));
  settings.parallel->expert_tensor_parallel_size = 2;
  trace = trace_of(settings, 1);
  EXPECT_EQ(trace.kept_by({expert_fc1}), 20 * 2 * 64);
  EXPECT_EQ(trace.kept_by({moe_act}), 20 * (2 * 32 + 4));
  settings.parallel->sequence_parallel = false;
  EXPECT_EQ(trace_of(settings, 1).kept_by({expert_fc1}), 20 * 2 * 64);
}

TEST(LayerTrace, RecomputedNodesAreNotKept) {
  const double hidden = 10 * 2 * 64;
  const auto less = [](std::int64_t layer, NodeSet recomputed) {
    return kept(two_kinds(), layer) -
           trace_of(two_kinds(), layer, {.recomputed = recomputed}).kept_bytes();
  };
  EXPECT_EQ(less(0, {layernorm}), 2 * hidden) << "the results of both norms";
  EXPECT_EQ(less(0, {mlp}), 10 * 2 * 2 * 96) << "the result of the first GEMM";
  EXPECT_EQ(less(0, {moe, shared_experts}), 0) << "a dense layer has none";
  const LayerTrace experts = trace_of(two_kinds(), 1);
  EXPECT_EQ(less(1, {moe}), experts.kept_by({moe, expert_fc1, moe_act}) - hidden)
      << "all but the input";
  EXPECT_EQ(less(1, {mlp}), 0);
  EXPECT_EQ(trace_of(two_kinds(), 0, {.full = true}).kept_bytes(), hidden);
  Settings halves = two_kinds();
  halves.parallel->tensor_model_parallel_size = 2;
  EXPECT_EQ(trace_of(halves, 0, {.full = true}, 0, /*distributes=*/true).kept_bytes(), hidden / 2);
}

TEST(LayerTrace, OffloadedNodesAreNotKeptUnlessAnotherReadsThem) {
  const double hidden = 10 * 2 * 64, heads = 2 * (64 + 16 + 16 + 64), lse = 4 * 8;
  const auto less = [](std::int64_t layer, LayerPolicy policy, std::int64_t min_elements = 0) {
    LayerPolicy stays = policy;
    stays.offloaded = {};
    return trace_of(two_kinds(), layer, stays).kept_bytes() -
           trace_of(two_kinds(), layer, policy, min_elements).kept_bytes();
  };
  EXPECT_EQ(less(0, {.offloaded = {qkv_linear}}), hidden);
  EXPECT_EQ(less(0, {.offloaded = {core_attn}}), 10 * (heads + lse))
      << "the result stays for the projection";
  EXPECT_EQ(less(0, {.offloaded = {attn_proj}}), 0) << "the result stays for attention";
  EXPECT_EQ(less(0, {.offloaded = {core_attn, attn_proj}}), 10 * (heads + lse) + hidden);
  EXPECT_EQ(less(0, {.offloaded = {mlp}}), hidden + 10 * 2 * 2 * 96);
  EXPECT_EQ(less(0, {.offloaded = {mlp}}, 10 * 64 + 1), 10 * 2 * 2 * 96);
  EXPECT_EQ(less(0, {.recomputed = {mlp}, .offloaded = {mlp}}), hidden)
      << "but for what is recomputed";
  EXPECT_EQ(less(0, {.full = true, .offloaded = {mlp}}), 0) << "a whole layer keeps its input";
  EXPECT_EQ(less(1, {.offloaded = {mlp}}), 0) << "a layer with experts has none";
  EXPECT_EQ(less(1, {.offloaded = {expert_fc1}}), 20 * 2 * 64);
  EXPECT_EQ(trace_of(two_kinds(), 0, {.offloaded = {mlp}}).offloaded, hidden + 10 * 2 * 2 * 96);
  EXPECT_EQ(trace_of(two_kinds(), 0, {.offload = true}).kept_bytes(), 0);
}

// Backward ends behind the first layers if nothing in them trains.
TEST(LayerTrace, OfFrozenWeightsKeepsLess) {
  Settings settings = two_kinds();
  const double whole = kept(settings, 1);
  settings.optimizer->freeze = {"embedding", R"(layers\.0\.)"};
  EXPECT_EQ(kept(settings, 0), 0);
  EXPECT_EQ(kept(settings, 1), whole);
}

// The second chunk of the first rank gets rows from another rank, whatever it trains.
TEST(LayerTrace, OfFrozenWeightsInALaterChunkKeepsWhatTheInputsGradientNeeds) {
  Settings settings = two_kinds();
  settings.model->num_layers = 4;
  set_experts(*settings.model, {0, 1, 0, 1});
  settings.optimizer->freeze = {"embedding", R"(layers\.[0-2]\.)"};
  settings.parallel->pipeline_model_parallel_size = 2;
  settings.parallel->num_virtual_stages_per_pipeline_rank = 2;
  const Rank rank = make_rank(Mesh({.pp = 2}, 2), 0);
  LayerTraces traces(find_model_family("gpt"));
  EXPECT_EQ(traces.of(settings, rank, 0).kept_bytes(), 0);
  EXPECT_GT(traces.of(settings, rank, 2).kept_bytes(), 0);
}

// Of hidden rows over 2 ranks: attention and MLP each all-reduce them in both passes; with sequence
// parallelism, forward gathers and scatters them, and backward gathers input and gradient and
// scatters the result.
TEST(LayerTrace, SendsHiddenRowsOverTensorRanks) {
  Settings settings = two_kinds();
  settings.parallel->tensor_model_parallel_size = 2;
  const double hidden = 10 * 64 * 2;
  EXPECT_EQ(trace_of(settings, 0).sent_over("tp"), 2 * 2 * hidden);
  settings.parallel->sequence_parallel = true;
  EXPECT_EQ(trace_of(settings, 0).sent_over("tp"), 2 * 5 * hidden / 2);
}

// A row and its probability go to other ranks and back, in both passes; counts of rows come first.
TEST(LayerTrace, SendsRowsToExperts) {
  Settings settings = two_kinds();
  EXPECT_TRUE(trace_of(settings, 1).sent.empty());
  settings.parallel->expert_model_parallel_size = 4;
  settings.parallel->expert_tensor_parallel_size = 1;
  const double rows = 20 * 64 * 2, probs = 20 * 4, counts = 8 * 8;
  EXPECT_EQ(trace_of(settings, 1).sent_over("etp-ep"), (4 * rows + 2 * probs + counts) * 3 / 4);
  settings.model->moe.token_dispatcher_type = TokenDispatcherType::allgather;
  const double copies = 40, of_copy = 4 * 64 * 2 + 2 * 2 * 4 + 2 * 4;
  EXPECT_EQ(trace_of(settings, 1).sent_over("etp-ep"), (copies * of_copy + 4 * 8) * 3 / 4)
      << "rows, both probabilities and both experts of a token, for each rank";
}

// The keys and values of a rank are 10 tokens of 2 groups of 8 channels each, in bf16.
TEST(LayerTrace, SendsKeysOrHeadsOverContextRanks) {
  constexpr double kKeys = 2 * 10 * 2 * 8 * 2, kQueries = 10 * 8 * 8 * 2;
  Settings settings = two_kinds();
  settings.training->seq_length = 40;
  settings.parallel->context_parallel_size = 4;
  const auto sent = [&](CpCommType exchange) {
    settings.parallel->cp_comm_type = {exchange};
    set_comm_types(*settings.model, {exchange});
    const LayerTrace trace = trace_of(settings, 0);
    return trace.sent_over("cp") + trace.sent_over("cp-a2a") + trace.sent_over("cp-p2p");
  };
  EXPECT_EQ(sent(CpCommType::p2p), 2 * 3 * kKeys + 4 * 2 * kKeys);
  EXPECT_EQ(sent(CpCommType::all_gather), 2 * 3 * kKeys);
  EXPECT_EQ(sent(CpCommType::a2a), 2 * (2 * kQueries + 2 * kKeys) * 3 / 4)
      << "each of 4 ranks has its copy of one of 2 groups";
  settings.parallel->hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(sent(CpCommType::a2a_p2p), 2 * (2 * kQueries + kKeys) / 2 + 2 * kKeys + 2 * 2 * kKeys);
}

TEST(LayerTraces, MakeOneForAKindOfLayer) {
  Settings settings = two_kinds();
  settings.model->moe = {};
  resolve_layers(*settings.model);
  const Rank rank = make_rank(Mesh({}, 1), 0);
  LayerTraces traces(find_model_family("gpt"));
  const LayerTrace& first = traces.of(settings, rank, 0);
  EXPECT_EQ(&first, &traces.of(settings, rank, 1));
  settings.training->seq_length *= 2;
  EXPECT_EQ(traces.of(settings, rank, 1).kept_bytes(), 2 * first.kept_bytes());
}

}  // namespace
}  // namespace megatron
