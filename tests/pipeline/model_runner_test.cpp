// What a pass through stages on many ranks gives equals one rank: bit for bit over stages alone,
// within rounding where tp splits sums.
#include "megatron/pipeline/model_runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/inference_passes.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

constexpr std::int64_t kVocabSize = 13, kSequence = 7;

struct Family {
  const char* name;
  TransformerConfig config;
};

std::vector<Family> families() {
  TransformerConfig base = tiny_gpt();
  base.num_layers = 4;
  base.init_method_std = 0.3;  // makes attention far from uniform
  TransformerConfig llama = base, bloom = base;
  make_llama(llama);
  bloom.position_embedding_type = PositionEmbedding::alibi;
  bloom.fp32_residual_connection = true;
  return {{"gpt", base}, {"llama", llama}, {"bloom", bloom}};
}

struct Cut {
  const char* name;
  ParallelConfig parallel;
};

std::vector<Cut> stage_cuts() {
  const auto cut = [](std::int64_t pp) {
    ParallelConfig parallel;
    parallel.pipeline_model_parallel_size = pp;
    return parallel;
  };
  ParallelConfig chunks = cut(2), folded = cut(2), uneven = cut(4), behind = cut(4),
                 around = cut(2);
  chunks.num_virtual_stages_per_pipeline_rank = 2;
  folded.pipeline_schedule = "zb-v";
  uneven.pipeline_model_parallel_layout = "E|ttt|t|L";
  behind.pipeline_model_parallel_layout = "E|ttt|tL|";
  around.pipeline_model_parallel_layout = "|Ett|ttL|";
  return {{"pp2", cut(2)},           {"pp4", cut(4)},        {"pp2 with two chunks", chunks},
          {"pp2 folded", folded},    {"ends alone", uneven}, {"nothing behind the output", behind},
          {"nothing around", around}};
}

/// The results on every rank: the logits of one full pass, and of a prompt of three tokens followed
/// by four steps of one token; and what else a pass may want of a packed microbatch.
struct Seen {
  at::Tensor full, stepped;
  std::vector<at::Tensor> others;
};

std::vector<at::Tensor> results(const ModelRunner& model) {
  const at::Tensor ids = (at::arange(2 * kSequence + 1) * 3 % kVocabSize).unsqueeze(0);
  const Microbatch microbatch{
      .tensors = {{"tokens", ids.narrow(1, 0, 2 * kSequence)},
                  {"labels", ids.narrow(1, 1, 2 * kSequence)},
                  {"loss_mask", at::ones({1, 2 * kSequence}, at::kFloat)}},
      .sample_ordinals = {},
      .packed = PackedSequences{.cu_seqlens = {0, 3, kSequence, 2 * kSequence}}};
  std::vector<at::Tensor> results;
  for (const Wants wants :
       {Wants::token_losses, Wants::hidden, Wants::logits, Wants::last_logits}) {
    const Pass pass{.microbatch = microbatch, .wants = wants};
    results.push_back(model.infer(pass));
    EXPECT_EQ(results.back().sizes(), model.model().result_shape(pass));
  }
  using Counts = std::vector<std::int64_t>;
  const at::Tensor hidden = results[1].squeeze(0);
  for (const Counts& counts : {Counts{2, 0, 3}, Counts{0, 0, 0}}) {
    LastHidden last{.counts = counts};
    results.push_back(model.infer({.microbatch = microbatch,
                                   .wants = Wants::last_logits,
                                   .num_logits = counts,
                                   .last_hidden = &last}));
    EXPECT_TRUE(at::equal(last.rows, at::cat({hidden.narrow(0, 3 - counts[0], counts[0]),
                                              hidden.narrow(0, 14 - counts[2], counts[2])})));
  }
  return results;
}

Seen look(const ModelRunner& model) {
  const c10::InferenceMode no_gradients;
  const at::Tensor tokens = (at::arange(2 * kSequence) * 5 % kVocabSize).view({2, kSequence});
  const OwnedCaches caches(2);
  std::vector<at::Tensor> parts = {
      model_logits(model, tokens.narrow(1, 0, 3), &caches, Wants::last_logits)};
  for (std::int64_t i = 3; i < kSequence; ++i) {
    parts.push_back(model_logits(model, tokens.narrow(1, i, 1), &caches,
                                 i % 2 == 0 ? Wants::last_logits : Wants::logits));
  }
  return {model_logits(model, tokens), at::cat(parts, 1), results(model)};
}

/// Returns the results per rank.
std::vector<Seen> seen_in(const TransformerConfig& config, c10::ScalarType dtype,
                          const ParallelConfig& parallel) {
  const MeshSizes sizes = mesh_sizes(parallel);
  std::vector<Seen> seen(static_cast<std::size_t>(sizes.tp * sizes.pp));
  run_rank_threads(
      std::ssize(seen),
      [&](Communicators& communicators) {
        const Rank rank = make_rank(Mesh(sizes, communicators.world_size()), communicators);
        const PipelineLayout layout = pipeline_layout(parallel, config.num_layers);
        const auto stages = make_gpt_model(
            config, rank,
            MakeModelOptions{.vocab_pad_multiple = 8, .dtype = dtype, .layout = &layout});
        ParamStore weights(declared_parameters(*stages),
                           {.dtype = dtype, .with_gradients = false, .model = rank.model});
        weights.initialize(1);
        seen[static_cast<std::size_t>(rank.index)] =
            look(ModelRunner(*stages, weights, layout, rank.pp));
      },
      {.timeout = std::chrono::milliseconds(20'000)});
  return seen;
}

TEST(ModelRunner, HasTheBitsOfOneRank) {
  for (const Family& family : families()) {
    for (const c10::ScalarType dtype : {c10::kFloat, c10::kBFloat16}) {
      const Seen one = seen_in(family.config, dtype, {}).front();
      ASSERT_EQ(one.full.sizes(), at::IntArrayRef({2, kSequence, kVocabSize}));
      ASSERT_EQ(one.stepped.sizes(), at::IntArrayRef({2, kSequence - 2, kVocabSize}));
      for (const Cut& cut : stage_cuts()) {
        for (const Seen& seen : seen_in(family.config, dtype, cut.parallel)) {
          EXPECT_TRUE(at::equal(seen.full, one.full))
              << family.name << ", " << cut.name << ", " << dtype;
          EXPECT_TRUE(at::equal(seen.stepped, one.stepped))
              << family.name << ", " << cut.name << ", " << dtype << ", in steps";
          for (std::size_t i = 0; i < one.others.size(); ++i)
            EXPECT_TRUE(at::equal(seen.others[i], one.others[i]))
                << family.name << ", " << cut.name << ", " << dtype << ", result " << i;
        }
      }
    }
  }
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>() / b.abs().max().item<double>();
}

TEST(ModelRunner, TensorParallelStagesAreAlikeOnAllRanks) {
  for (const Family& family : families()) {
    const Seen one = seen_in(family.config, c10::kDouble, {}).front();
    for (const std::int64_t num_chunks : {1, 2}) {
      ParallelConfig parallel;
      parallel.tensor_model_parallel_size = parallel.pipeline_model_parallel_size = 2;
      if (num_chunks > 1) parallel.num_virtual_stages_per_pipeline_rank = num_chunks;
      const std::vector<Seen> all = seen_in(family.config, c10::kDouble, parallel);
      for (const Seen& seen : all) {
        EXPECT_LE(difference(seen.full, one.full), 1e-6) << family.name;  // logits are float32
        EXPECT_LE(difference(seen.stepped, one.stepped), 1e-6) << family.name;
        EXPECT_TRUE(at::equal(seen.full, all[0].full))
            << family.name << ": ranks would draw different tokens";
        EXPECT_TRUE(at::equal(seen.stepped, all[0].stepped))
            << family.name << ": ranks would draw different tokens";
      }
    }
  }
}

}  // namespace
}  // namespace megatron
