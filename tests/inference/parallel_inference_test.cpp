// Checks that a model split over many ranks gives the same output as on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/inference/generator.h"
#include "megatron/inference/load_model.h"
#include "megatron/inference/scorer.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "support/gpt_model.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::HasSubstr;

/// Writes a model of four layers and four heads as a checkpoint and as a Hugging Face folder.
class ParallelInference : public testing::Test {
 protected:
  ParallelInference() {
    model_.num_layers = 4;
    model_.hidden_size = 16;
    model_.num_attention_heads = 4;
    model_.group_query_attention = true;
    model_.num_query_groups = 2;
    model_.ffn_hidden_size = 24;
    model_.vocab_size = 61;
    model_.max_position_embeddings = 64;
    model_.init_method_std = 0.3;
    model_.normalization = Normalization::RMSNorm;
    model_.position_embedding_type = PositionEmbedding::rope;
    model_.activation = Activation::silu;
    model_.gated_linear_unit = true;
    model_.add_bias_linear = false;
    resolve(model_);
  }

  void save(bool is_tied) {
    save_ours(is_tied);
    convert_checkpoint({.load = root_ / "ours", .save = root_ / "theirs", .format = "hf"});
  }

  void save_ours(bool is_tied) {
    fs::remove_all(root_);
    model_.untie_embeddings_and_output_weights = !is_tied;
    const auto model = make_gpt_model(model_, Rank{});
    ParamStore weights(declared_parameters(*model), {.with_gradients = false});
    weights.initialize(3);
    Settings settings;
    settings.model = model_;
    save_checkpoint(root_ / "ours", {.model = &model_,
                                     .settings = &settings,
                                     .weights = &weights,
                                     .progress = {.iteration = 5}});
  }

  TransformerConfig model_;
  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_ / "run";
};

ParallelConfig parallel_config(std::int64_t tp, std::int64_t pp, std::int64_t chunks = 1,
                               std::int64_t cp = 1) {
  ParallelConfig parallel;
  parallel.context_parallel_size = cp;
  parallel.tensor_model_parallel_size = tp;
  parallel.pipeline_model_parallel_size = pp;
  if (chunks > 1) parallel.num_virtual_stages_per_pipeline_rank = chunks;
  return parallel;
}

struct InferenceResult {
  std::vector<std::int64_t> greedy, drawn;
  std::vector<std::vector<std::int64_t>> drafted;  ///< as drawn, with drafts
  std::vector<std::vector<std::int64_t>> batch;    ///< greedy, of the same prompt and a longer one
  std::vector<double> logprobs;
  std::vector<std::vector<std::vector<std::int32_t>>> routed_experts;  ///< of the greedy text
};

/// Returns the output of every rank, by rank.
std::vector<InferenceResult> results_by_rank(const fs::path& folder, const ParallelConfig& parallel,
                                             std::optional<c10::ScalarType> type = {},
                                             bool packs_weights = false) {
  const MeshSizes sizes = mesh_sizes(parallel);
  const std::int64_t world_size =
      std::max(sizes.tp * sizes.cp, sizes.expert_tp() * sizes.ep) * sizes.pp;
  std::vector<InferenceResult> all(static_cast<std::size_t>(world_size));
  run_rank_threads(
      std::ssize(all),
      [&](Communicators& communicators) {
        const Rank rank = make_rank(Mesh(sizes, communicators.world_size()), communicators);
        const LoadedModel loaded = load_model(
            folder, std::nullopt,
            {.rank = rank, .parallel = parallel, .type = type, .packs_weights = packs_weights});
        InferenceResult& here = all[static_cast<std::size_t>(rank.index)];
        const std::vector<std::int64_t> prompt{3, 1, 4, 1, 5};
        const bool has_experts = loaded.runner.config().moe.num_experts > 0;
        Generation greedy = Generator(loaded.runner, {.temperature = 0,
                                                      .max_new_tokens = 12,
                                                      .return_routed_experts = has_experts})
                                .generate(prompt, 0);
        here.greedy = std::move(greedy.ids);
        here.routed_experts = std::move(greedy.routed_experts);
        here.drawn =
            Generator(loaded.runner, {.top_k = 20, .max_new_tokens = 12}).generate(prompt, 2).ids;
        for (const SpeculationOptions& drafts :
             {SpeculationOptions{.config = {.num_speculative_tokens = 3,
                                           .speculative_method = SpeculativeMethod::ngram,
                                           .ngram_prompt_lookup_min = 1}},
              SpeculationOptions{
                  .config = {.num_speculative_tokens = 2, .speculative_model = "itself"},
                 .draft_model = &loaded.runner}})
          here.drafted.push_back(
              Generator(loaded.runner, {.top_k = 20, .max_new_tokens = 12}, {.speculation = drafts})
                  .generate(prompt, 2)
                  .ids);
        const std::vector<std::int64_t> longer{9, 2, 6, 5, 3, 5, 8};
        for (const std::vector<Generation>& texts :
             Generator(loaded.runner, {.temperature = 0, .max_new_tokens = 12})
                 .generate_all(std::vector<Prompt>{{prompt, 0}, {longer, 1}}))
          here.batch.push_back(texts.front().ids);
        here.logprobs = score_tokens(loaded.runner, here.drawn, "ids").logprobs;
      },
      {.timeout = std::chrono::milliseconds(20'000)});
  return all;
}

TEST_F(ParallelInference, SayWhatOneRankSays) {
  for (const bool is_tied : {true, false}) {
    save(is_tied);
    for (const char* folder : {"ours", "theirs"}) {
      const InferenceResult one = results_by_rank(root_ / folder, {}).front();
      EXPECT_EQ(one.greedy.size(), 12u);
      for (const ParallelConfig& parallel :
           {parallel_config(1, 2), parallel_config(1, 4), parallel_config(1, 2, 2),
            parallel_config(2, 1), parallel_config(2, 2), parallel_config(2, 2, 2),
            parallel_config(1, 1, 1, 2), parallel_config(2, 2, 1, 2)}) {
        for (const InferenceResult& here : results_by_rank(root_ / folder, parallel)) {
          EXPECT_EQ(here.greedy, one.greedy) << folder;
          EXPECT_EQ(here.drawn, one.drawn) << folder;
          for (const auto& drafted : here.drafted) EXPECT_EQ(drafted, one.drawn) << folder;
          EXPECT_EQ(here.batch, one.batch) << folder;
          EXPECT_EQ(here.batch[0], here.greedy) << folder;
          ASSERT_EQ(here.logprobs.size(), one.logprobs.size()) << folder;
          const bool is_split = parallel.tensor_model_parallel_size > 1;
          for (std::size_t i = 0; i < one.logprobs.size(); ++i)
            EXPECT_NEAR(here.logprobs[i], one.logprobs[i], is_split ? 1e-4 : 0) << folder;
        }
      }
    }
  }
}

TEST_F(ParallelInference, PackedWeightsChangeNoBit) {
  model_.hidden_size = 64;  // panels of 32 columns
  model_.ffn_hidden_size = 128;
  for (const bool is_tied : {true, false}) {
    save_ours(is_tied);
    for (const c10::ScalarType type : {c10::kFloat, c10::kBFloat16}) {
      for (const ParallelConfig& parallel : {parallel_config(1, 1), parallel_config(2, 2)}) {
        const InferenceResult plain = results_by_rank(root_ / "ours", parallel, type).front(),
                              packed = results_by_rank(root_ / "ours", parallel, type,
                                                       /*packs_weights=*/true)
                                           .front();
        EXPECT_EQ(packed.greedy, plain.greedy);
        EXPECT_EQ(packed.drawn, plain.drawn);
        EXPECT_EQ(packed.batch, plain.batch);
        EXPECT_EQ(packed.logprobs, plain.logprobs);
      }
    }
  }
}

TEST_F(ParallelInference, StagesMayBeGivenByALayout) {
  save_ours(false);
  const InferenceResult one = results_by_rank(root_ / "ours", {}).front();
  ParallelConfig parallel = parallel_config(1, 4);
  parallel.pipeline_model_parallel_layout = "E|ttt|t|L";
  for (const InferenceResult& here : results_by_rank(root_ / "ours", parallel)) {
    EXPECT_EQ(here.drawn, one.drawn);
    EXPECT_EQ(here.logprobs, one.logprobs);
  }
}

TEST_F(ParallelInference, ExpertsSayWhatOneRankSays) {
  model_.moe.num_experts = 8;
  model_.moe.router_topk = 2;
  model_.moe.ffn_hidden_size = 16;
  model_.moe.shared_expert_intermediate_size = 16;
  model_.moe.router_score_function = RouterScore::sigmoid;
  resolve(model_);
  ParallelConfig experts, both = parallel_config(2, 1);
  experts.expert_model_parallel_size = both.expert_model_parallel_size = 2;
  both.expert_tensor_parallel_size = 1;
  for (const auto dispatcher : {TokenDispatcherType::allgather, TokenDispatcherType::alltoall}) {
    model_.moe.token_dispatcher_type = dispatcher;
    save_ours(false);
    const InferenceResult one = results_by_rank(root_ / "ours", {}).front();
    EXPECT_EQ(one.routed_experts.size(), 5 + one.greedy.size() - 1);
    for (const ParallelConfig& parallel : {experts, both, parallel_config(2, 2)}) {
      for (const InferenceResult& here : results_by_rank(root_ / "ours", parallel)) {
        EXPECT_EQ(here.routed_experts, one.routed_experts);
        EXPECT_EQ(here.greedy, one.greedy);
        EXPECT_EQ(here.drawn, one.drawn);
        for (const auto& drafted : here.drafted) EXPECT_EQ(drafted, one.drawn);
        EXPECT_EQ(here.batch, one.batch);
        EXPECT_EQ(here.batch[0], here.greedy);
        ASSERT_EQ(here.logprobs.size(), one.logprobs.size());
        for (std::size_t i = 0; i < one.logprobs.size(); ++i)
          EXPECT_NEAR(here.logprobs[i], one.logprobs[i], 1e-4);
      }
    }
  }
}

TEST_F(ParallelInference, SayTheSameInSixteenBits) {
  save(true);
  const InferenceResult one = results_by_rank(root_ / "ours", {}, c10::kBFloat16).front();
  for (const InferenceResult& here :
       results_by_rank(root_ / "ours", parallel_config(1, 2, 2), c10::kBFloat16)) {
    EXPECT_EQ(here.drawn, one.drawn);
    EXPECT_EQ(here.logprobs, one.logprobs);
  }
}

TEST_F(ParallelInference, ModelsThatCannotBeCutAreUserErrors) {
  save(true);
  const auto message = [&](const ParallelConfig& parallel) {
    return message_of([&] { results_by_rank(root_ / "ours", parallel); });
  };
  EXPECT_THAT(message(parallel_config(1, 8)), HasSubstr("--pipeline-model-parallel-size"));
  EXPECT_THAT(
      message(parallel_config(3, 1)),
      HasSubstr("--num-attention-heads: 4 is no multiple of --tensor-model-parallel-size 3"));
  EXPECT_THAT(message(parallel_config(1, 2, 3)), HasSubstr("2 x 3 chunks"));
}

TEST_F(ParallelInference, TensorsThatNoRankTakesAreNamed) {
  save(false);
  model_.untie_embeddings_and_output_weights = false;
  const PipelineLayout layout = pipeline_layout(parallel_config(1, 2), model_.num_layers);
  const auto load = [&](Communicators& communicators) {
    const Rank rank = make_rank(Mesh(MeshSizes{.pp = 2}, 2), communicators);
    const auto stages = make_gpt_model(model_, rank, MakeModelOptions{.layout = &layout});
    ParamStore weights(declared_parameters(*stages),
                       {.with_gradients = false, .model = rank.model});
    load_weights(*find_checkpoint(root_ / "ours"), weights);
  };
  const std::string message = message_of(
      [&] { run_rank_threads(2, load, {.timeout = std::chrono::milliseconds(20'000)}); });
  EXPECT_THAT(message, HasSubstr("output_layer.weight"));
  EXPECT_THAT(message, testing::Not(HasSubstr("decoder.")));
}

}  // namespace
}  // namespace megatron
