// Expected bytes come from the shapes of the weights and from stores that hold them.
#include "megatron/planner/rank_memory.h"

#include <gtest/gtest.h>

#include "kernels/block_sums.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/run_costs.h"
#include "support/bare_module.h"
#include "support/gpt_traces.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

constexpr std::int64_t kBlock = kernels::kStateBlock, kHidden = 2 * kBlock, kExperts = 8,
                       kWidth = 64;

/// The weights of the feed-forward part of an MoE layer on one rank, without biases.
struct ExpertWeights : BareModule {
  explicit ExpertWeights(const Rank& rank) {
    add("router.weight", normal_spec({kExperts, kHidden}));
    add("router.expert_bias", {.sharding = Sharding::replicated({kExperts}),
                               .init = Init::zeros(),
                               .tags = {},
                               .kind = ParameterKind::state,
                               .dtype = at::kFloat});
    const auto expert = [&](const char* name, Shape shape, int split_dim) {
      const Sharding sharding{.global_shape = std::move(shape),
                              .splits = {{.dim = 0}, {.dim = split_dim}}};
      add_over(name, {sharding, Init::normal(1), {.expert = true}}, {rank.ep, rank.etp});
    };
    expert("experts.linear_fc1.weight", {kExperts, kWidth, kHidden}, 1);
    expert("experts.linear_fc2.weight", {kExperts, kHidden, kWidth}, 2);
  }
};

Settings settings_of(std::int64_t tp, std::int64_t ep, std::int64_t etp) {
  Settings settings;
  settings.parallel->tensor_model_parallel_size = tp;
  settings.parallel->expert_model_parallel_size = ep;
  settings.parallel->expert_tensor_parallel_size = etp;
  settings.parallel->use_distributed_optimizer = true;
  settings.training->bf16 = true;
  return settings;
}

RankMemory memory_of(const Settings& settings, std::int64_t world_size) {
  const Rank rank = make_rank(Mesh(mesh_sizes(*settings.parallel), world_size), 0);
  ExpertWeights model(rank);
  return parameter_memory(declared_parameters(model), settings, rank);
}

TEST(ParameterMemory, ExpertsAreShardedOverTheirOwnRanks) {
  // world 16 = tp 2 · dp 8 = etp 1 · ep 4 · edp 4
  const RankMemory memory = memory_of(settings_of(2, 4, 1), 16);
  const double router = kExperts * kHidden, experts = 2.0 * kExperts * kWidth * kHidden / 4;
  const double bias = 4.0 * 8 * kBlock;  // one block for each rank of dp, in float32
  EXPECT_EQ(memory.num_dense_weights, router);
  EXPECT_EQ(memory.num_expert_weights, experts);
  EXPECT_EQ(memory.expert_parameters, 2 * experts);
  EXPECT_EQ(memory.parameters, 2 * (router + experts) + bias);
  EXPECT_EQ(memory.gradients, 4 * (router + experts)) << "the expert bias has no gradient";
  EXPECT_EQ(memory.main_parameters, 4 * (router / 8 + experts / 4));
  EXPECT_EQ(memory.optimizer_state, 8 * (router / 8 + experts / 4));
}

TEST(ParameterMemory, ExpertTensorParallelismDividesEachExpert) {
  const RankMemory whole = memory_of(settings_of(2, 4, 1), 16),
                   halves = memory_of(settings_of(2, 4, 2), 16);
  EXPECT_EQ(halves.num_expert_weights, whole.num_expert_weights / 2);
  EXPECT_EQ(halves.num_dense_weights, whole.num_dense_weights);
  // Half the weights over half as many ranks.
  EXPECT_EQ(halves.optimizer_state, whole.optimizer_state);
}

TEST(ParameterMemory, WithoutDistributedOptimizerStateIsNotDivided) {
  Settings settings = settings_of(1, 2, 1);
  settings.parallel->use_distributed_optimizer = false;
  const RankMemory memory = memory_of(settings, 4);
  const double weights = memory.num_dense_weights + memory.num_expert_weights;
  EXPECT_EQ(memory.main_parameters, 4 * weights);
  EXPECT_EQ(memory.optimizer_state, 8 * weights);
  settings.optimizer->optimizer = "sgd";
  EXPECT_EQ(memory_of(settings, 4).optimizer_state, 4 * weights);
  settings.optimizer->sgd_momentum = 0;
  EXPECT_EQ(memory_of(settings, 4).optimizer_state, 0);
  settings.training->bf16 = false;
  EXPECT_EQ(memory_of(settings, 4).main_parameters, 0);
}

// Dettmers et al. 2022: a byte an element and a float32 for each block.
TEST(ParameterMemory, SmallerStateHasItsScales) {
  Settings settings = settings_of(1, 1, 1);
  const double weights =
      memory_of(settings, 1).num_dense_weights + memory_of(settings, 1).num_expert_weights;
  for (const char* dtype : {"int8", "fp8"}) {
    settings.optimizer->exp_avg_dtype = settings.optimizer->exp_avg_sq_dtype = dtype;
    EXPECT_EQ(memory_of(settings, 1).optimizer_state, 2 * weights + 2 * weights / kBlock * 4)
        << dtype;
  }
}

// A layer of a tiny model offloads less than the lower bound, and one of width 4096 more than the
// upper one.
TEST(OffloadBytesInFlight, AreThoseOfALayer) {
  const auto bytes = [](std::int64_t tokens, std::int64_t width) {
    Settings settings;
    settings.training->bf16 = true;
    settings.training->micro_batch_size = 1;
    settings.training->seq_length = tokens;
    settings.model->num_layers = 2;
    settings.model->hidden_size = width;
    settings.model->num_attention_heads = 4;
    settings.model->kv_channels = width / 4;
    settings.model->ffn_hidden_size = 4 * width;
    settings.model->vocab_size = 16;
    settings.memory->offload.cpu_offloading = true;
    const Rank rank = make_rank(Mesh(mesh_sizes(*settings.parallel), 1), 0);
    return offload_bytes_in_flight(settings, find_model_family("gpt"), rank,
                                   single_stage_layout(2));
  };
  EXPECT_EQ(bytes(64, 64), 16U << 20);
  EXPECT_EQ(bytes(8192, 4096), 256U << 20);
  // Of a token 12 rows of the width in bf16: the inputs and outputs of two norms, q, k, v, the
  // result of attention, and four of the MLP's first GEMM.
  constexpr double kRows = 2.0 * 12 * 512 * 8192;
  EXPECT_NEAR(static_cast<double>(bytes(8192, 512)), kRows, 0.01 * kRows);
}

TEST(ParameterMemory, OffloadedStateIsInTheFile) {
  Settings settings = settings_of(1, 1, 1);
  settings.memory->offload.optimizer_cpu_offload = true;
  const RankMemory memory = memory_of(settings, 1);
  const double weights = memory.num_dense_weights + memory.num_expert_weights;
  EXPECT_EQ(memory.main_parameters, 0);
  EXPECT_EQ(memory.optimizer_state, 0);
  EXPECT_EQ(memory.offloaded_state, 12 * weights) << "main weights and two moments in float32";
  // Less than the 64 MiB that may wait to be written: all of it may be in memory.
  EXPECT_EQ(memory.update_windows, memory.offloaded_state);
}

TEST(ParameterMemory, ErrorFeedbackIsAByteOfEachGradient) {
  Settings settings = settings_of(1, 1, 1);
  settings.optimizer->main_grads_dtype = "bf16";
  settings.optimizer->main_grads_error_feedback = true;
  const RankMemory memory = memory_of(settings, 1);
  EXPECT_EQ(memory.gradients, 3 * (memory.num_dense_weights + memory.num_expert_weights));
}

TEST(ParameterMemory, InstancesOfTheOptimizerEachHoldAllState) {
  Settings settings = settings_of(1, 1, 1);
  const double one = memory_of(settings, 8).optimizer_state;
  settings.parallel->num_distributed_optimizer_instances = 4;
  EXPECT_EQ(memory_of(settings, 8).optimizer_state, 4 * one);
}

/// Returns the buffers of gradients of an embedding, two layers and, if untied, an output layer,
/// each a unit of its own, in units of a layer. The embedding is four times as large.
double gradient_buffers(bool is_tied, bool overlaps) {
  constexpr std::int64_t kLayer = 16 * kBlock;
  Settings settings = settings_of(1, 1, 1);
  settings.parallel->zero_stage = 2;
  settings.parallel->overlap_grad_reduce = overlaps;
  settings.model->untie_embeddings_and_output_weights = !is_tied;
  BareModule model;
  model.add("embedding", normal_spec({4 * kLayer}, {.embedding = true}));
  for (const char* name : {"layer1", "layer2"}) model.add(name, normal_spec({kLayer}));
  if (!is_tied) model.add("output", normal_spec({4 * kLayer}, {.embedding = true}));
  const std::vector<Parameter*> declared = declared_parameters(model);
  const Rank rank = make_rank(Mesh(mesh_sizes(*settings.parallel), 2), 0);
  const UnitParameters units{.starts = {declared.begin(), declared.end()}};
  return parameter_memory(declared, settings, rank, units).buffers / (4.0 * kLayer);
}

TEST(ParameterMemory, GradientsOfUnitsThatAreNotYetReduced) {
  EXPECT_EQ(gradient_buffers(/*is_tied=*/false, /*overlaps=*/false), 4 + 1)
      << "the output layer's buffer is free while a layer runs, and passes on to the embedding";
  EXPECT_EQ(gradient_buffers(/*is_tied=*/false, /*overlaps=*/true), 4 + 2);
  EXPECT_EQ(gradient_buffers(/*is_tied=*/true, /*overlaps=*/false), 4 + 1)
      << "a tied embedding waits for its second contribution";
  EXPECT_EQ(gradient_buffers(/*is_tied=*/true, /*overlaps=*/true), 4 + 2);
}

TEST(RankMemory, EarlyStagesKeepMoreMicrobatches) {
  Settings settings;
  settings.model = tiny_gpt();
  settings.training->micro_batch_size = 2;
  settings.training->seq_length = 8;
  settings.parallel->pipeline_model_parallel_size = 2;
  const PipelineLayout layout = pipeline_layout(*settings.parallel, 2);
  const Mesh mesh(mesh_sizes(*settings.parallel), 2);
  const auto activations = [&](std::int64_t rank, std::int64_t num_microbatches) {
    return predict_rank_memory(settings, gpt_traces(), make_rank(mesh, rank), layout,
                               num_microbatches)
        .activations;
  };
  EXPECT_GT(activations(1, 8), 0);
  EXPECT_EQ(activations(0, 8), 2 * activations(1, 8));
  EXPECT_EQ(activations(0, 1), activations(1, 8));
  EXPECT_EQ(
      predict_rank_memory(settings, gpt_traces(), make_rank(mesh, 1), layout, 1).sharing_stages,
      (std::vector<std::vector<std::int64_t>>{{0, 1}}))
      << "of the tied embeddings";
}

TEST(RunMemoryLayout, HasTheAxesOfExperts) {
  const Settings settings = settings_of(2, 4, 1);
  const Rank rank = make_rank(Mesh(mesh_sizes(*settings.parallel), 16), 0);
  const MemoryLayout layout = run_memory_layout(settings, rank, 1);
  EXPECT_EQ(layout.data_parallel, 8);
  EXPECT_EQ(layout.expert_parallel, 4);
  EXPECT_EQ(layout.expert_tensor_parallel, 1);
  EXPECT_EQ(layout.expert_data_parallel, 4);
}

}  // namespace
}  // namespace megatron
