// Logits through stages on many ranks equal those of one rank: bit for bit over stages alone,
// within rounding where tp splits sums.
#include "megatron/pipeline/pipelined_logits.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/gpt_model.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/params/param_store.h"
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
/// by four steps of one token.
struct Seen {
  at::Tensor full, stepped;
};

Seen look(LanguageModel& model) {
  const c10::InferenceMode no_gradients;
  const at::Tensor tokens = (at::arange(2 * kSequence) * 5 % kVocabSize).view({2, kSequence});
  KvCache states;
  std::vector<at::Tensor> parts = {model.logits(tokens.narrow(1, 0, 3), 0, &states, true)};
  for (std::int64_t i = 3; i < kSequence; ++i)
    parts.push_back(model.logits(tokens.narrow(1, i, 1), i, &states, i % 2 == 0));
  return {model.logits(tokens, 0, nullptr, false), at::cat(parts, 1)};
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
        PipelinedLogits whole(*stages, layout, rank);
        seen[static_cast<std::size_t>(rank.index)] = look(sizes.pp == 1 ? *stages : whole);
      },
      {.timeout = std::chrono::milliseconds(20'000)});
  return seen;
}

TEST(PipelinedLogits, HaveTheBitsOfOneRank) {
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
        }
      }
    }
  }
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>() / b.abs().max().item<double>();
}

TEST(PipelinedLogits, OfTensorParallelStagesAreAlikeOnAllRanks) {
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
