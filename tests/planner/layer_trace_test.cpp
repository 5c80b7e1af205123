// Traces against the formulas for what layers keep and send.
#include "megatron/planner/layer_trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>

#include "megatron/base/monotonic_clock.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/communication_volume.h"

namespace megatron {
namespace {

/// Two layers of width 1024 with 16 heads; 2 sequences of 1024 tokens in bf16.
Settings wide_settings() {
  Settings settings;
  TransformerConfig& model = *settings.model;
  model.num_layers = 2;
  model.hidden_size = 1024;
  model.num_attention_heads = 16;
  model.kv_channels = 64;
  model.ffn_hidden_size = 4096;
  model.vocab_size = 512;
  model.max_position_embeddings = 1024;
  settings.training->micro_batch_size = 2;
  settings.training->seq_length = 1024;
  settings.training->bf16 = true;
  return settings;
}

void make_llama(TransformerConfig& model) {
  model.normalization = Normalization::RMSNorm;
  model.position_embedding_type = PositionEmbedding::rope;
  model.gated_linear_unit = true;
  model.activation = Activation::silu;
  model.add_bias_linear = false;
  model.group_query_attention = true;
  model.num_query_groups = 4;
  model.hidden_dropout = model.attention_dropout = 0;
}

void add_experts(Settings& settings) {
  MoeConfig& moe = settings.model->moe;
  moe.num_experts = 8;
  moe.router_topk = 2;
  moe.ffn_hidden_size = 2048;
  moe.token_dispatcher_type = TokenDispatcherType::alltoall;
  set_experts(*settings.model, {0, 1});
}

Rank rank_of(const Settings& settings) {
  const ParallelConfig& parallel = *settings.parallel;
  const MeshSizes sizes = mesh_sizes(parallel);
  const std::int64_t world = std::max(sizes.tp * sizes.cp, sizes.ep * sizes.expert_tp()) * sizes.pp;
  return make_rank(Mesh(sizes, world), 0, {.sequence_parallel = parallel.sequence_parallel});
}

struct Variant {
  const char* name;
  std::function<void(Settings&)> change;
  LayerPolicy policy = {};
  /// Sequence parallelism gathers the input of a layer again in backward, which the formula leaves
  /// out: five exchanges of hidden rows in place of four.
  double tensor_ratio = 1;
};

const Variant kVariants[] = {
    {"dense, dropout", [](Settings&) {}},
    {"grouped queries, rope", [](Settings& s) { make_llama(*s.model); }},
    {"window, norms of heads, tp 2",
     [](Settings& s) {
       make_llama(*s.model);
       s.model->qk_layernorm = true;
       s.model->window_size = {255, 0};
       s.parallel->tensor_model_parallel_size = 2;
     }},
    {"tp 4, sequence parallel",
     [](Settings& s) {
       make_llama(*s.model);
       s.parallel->tensor_model_parallel_size = 4;
       s.parallel->sequence_parallel = true;
     },
     {},
     1.25},
    {"experts, ep 2",
     [](Settings& s) {
       make_llama(*s.model);
       add_experts(s);
       s.parallel->expert_model_parallel_size = 2;
     }},
    {"shared experts, tp 2, ep 2",
     [](Settings& s) {
       add_experts(s);
       s.model->moe.shared_expert_intermediate_size = 1024;
       s.parallel->tensor_model_parallel_size = 2;
       s.parallel->expert_model_parallel_size = 2;
       s.parallel->expert_tensor_parallel_size = 1;
     }},
    {"hybrid pattern",
     [](Settings& s) {
       s.model->moe.num_experts = 8;
       s.model->moe.ffn_hidden_size = 2048;
       s.model->hybrid_layer_pattern = "*-*E";
       resolve_layers(*s.model);
     }},
    {"cp 4, p2p",
     [](Settings& s) {
       make_llama(*s.model);
       s.parallel->context_parallel_size = 4;
     }},
    {"cp 2, all-gather",
     [](Settings& s) {
       s.parallel->context_parallel_size = 2;
       s.parallel->cp_comm_type = {CpCommType::all_gather};
       set_comm_types(*s.model, {CpCommType::all_gather});
     }},
    {"cp 4, a2a",
     [](Settings& s) {
       make_llama(*s.model);
       s.parallel->context_parallel_size = 4;
       s.parallel->cp_comm_type = {CpCommType::a2a};
       set_comm_types(*s.model, {CpCommType::a2a});
     }},
    {"norms recomputed", [](Settings&) {}, {.recomputed = {LayerNode::layernorm}}},
    {"MLP and experts recomputed",
     [](Settings& s) { add_experts(s); },
     {.recomputed = {LayerNode::mlp, LayerNode::moe}}},
    {"layers recomputed", [](Settings& s) { make_llama(*s.model); }, {.full = true}},
};

/// Prints both figures and their difference. Within 1 %: formulas leave out maps of rows and
/// probabilities of routers.
void expect_near(const char* name, const char* what, double traced, double formula) {
  if (traced == 0 && formula == 0) return;
  std::printf("%-32s %-10s traced %14.0f formula %14.0f %+7.3f %%\n", name, what, traced, formula,
              100 * (traced / formula - 1));
  EXPECT_NEAR(traced / formula, 1, 0.01) << name << ", " << what;
}

TEST(LayerTrace, AgreesWithTheFormulas) {
  for (const Variant& variant : kVariants) {
    Settings settings = wide_settings();
    variant.change(settings);
    const Rank rank = rank_of(settings);
    const TransformerConfig& model = *settings.model;
    const ActivationLayout layout = activation_layout(settings, rank);
    const ActivationPlan plan{.layers = std::vector<LayerPolicy>(
                                  static_cast<std::size_t>(model.num_layers), variant.policy)};
    LayerTraces traces(find_model_family("gpt"));
    double tensor = 0, context = 0, expert = 0;
    std::vector<std::int64_t> layers;
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
      layers.push_back(layer);
      const StageActivations stage = stage_activations(model, {layer}, plan, layout);
      const LayerTrace& trace = traces.of(settings, rank, layer, plan);
      expect_near(variant.name, "kept", trace.kept_bytes(), stage.total_kept());
      if (variant.policy != LayerPolicy{}) continue;
      tensor += trace.sent_over("tp");
      context += trace.sent_over("cp");
      expert += trace.sent_over("etp-ep");
    }
    if (variant.policy != LayerPolicy{}) continue;
    const CommunicationVolume volume = activation_volume(settings, layout, layers, 1);
    expect_near(variant.name, "over tp", tensor, variant.tensor_ratio * volume.tensor);
    expect_near(variant.name, "over cp", context, volume.context);
    expect_near(variant.name, "to experts", expert, volume.expert);
  }
}

TEST(LayerTrace, IsMadeOnceForAKindOfLayer) {
  const Settings settings = wide_settings();
  const Rank rank = rank_of(settings);
  LayerTraces traces(find_model_family("gpt"));
  const LayerTrace& first = traces.of(settings, rank, 0);
  EXPECT_EQ(&first, &traces.of(settings, rank, 1));
  const double begin = monotonic_seconds();
  traces.of(settings, rank, 0, {.layers = std::vector<LayerPolicy>(2, {.full = true})});
  std::printf("a trace took %.2f ms\n", 1e3 * (monotonic_seconds() - begin));
}

TEST(LayerTrace, FollowsTheNodesOfALayer) {
  const Settings settings = wide_settings();
  const double hidden = 2 * 2048 * 1024;
  LayerTraces traces(find_model_family("gpt"));
  const LayerTrace& trace = traces.of(settings, rank_of(settings), 0);
  const auto kept = [&](LayerNode node) { return trace.kept_by({node}); };
  const double statistics = 2 * 4 * 2048, lse = 4 * 2048 * 16;
  EXPECT_EQ(kept(LayerNode::attn_norm), hidden + statistics) << "the input, mean and rstd";
  EXPECT_EQ(kept(LayerNode::qkv_linear), hidden);
  EXPECT_EQ(kept(LayerNode::core_attn), 3 * hidden + hidden + lse) << "q|k|v and the result";
  EXPECT_EQ(kept(LayerNode::attn_proj), 0) << "it reads the result of attention too";
  EXPECT_EQ(kept(LayerNode::mlp_norm), hidden + statistics);
  EXPECT_EQ(kept(LayerNode::mlp), hidden + 4 * hidden) << "its input and the first GEMM's result";
  EXPECT_EQ(trace.kept_bytes(), trace.kept_until(LayerNode::mlp));
  EXPECT_EQ(trace.kept_until(LayerNode::core_attn), 6 * hidden + statistics + lse);
}

// Backward ends behind the first layers if nothing in them trains.
TEST(LayerTrace, OfFrozenWeightsKeepsLess) {
  Settings settings = wide_settings();
  const Rank rank = rank_of(settings);
  const auto kept = [&](std::int64_t layer) {
    return LayerTraces(find_model_family("gpt")).of(settings, rank, layer).kept_bytes();
  };
  const double whole = kept(1);
  settings.optimizer->freeze = {"embedding", R"(layers\.0\.)"};
  EXPECT_EQ(kept(0), 0);
  EXPECT_EQ(kept(1), whole);
}

}  // namespace
}  // namespace megatron
