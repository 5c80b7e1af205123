// Generation and diagnosis on tensor-parallel ranks: every rank has the whole logits, KV caches
// hold the rank's heads, and hooks see the same ops.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/gradient_check.h"
#include "support/inference_passes.h"
#include "support/tensor_parallel.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

TransformerConfig llama() {
  TransformerConfig config = tiny_gpt();
  config.init_method_std = 0.3;
  make_llama(config);
  return config;
}

/// Returns the logits of two samples of seven tokens on every rank: in one pass, or in pieces with
/// a KV cache.
std::vector<at::Tensor> logits_of(const TransformerConfig& config, const TensorLayout& layout,
                                  bool in_pieces) {
  std::vector<at::Tensor> result(static_cast<std::size_t>(layout.tp));
  const at::Tensor tokens = (at::arange(14) * 5 % config.vocab_size).view({2, 7});
  on_tensor_ranks(layout, [&](const Rank& rank, Communicators&) {
    const auto model = make_gpt_model(config, rank, 8);
    ParamStore store(declared_parameters(*model), {.dtype = at::kDouble, .with_gradients = false});
    store.initialize(1);
    at::Tensor& logits = result[static_cast<std::size_t>(rank.index)];
    if (!in_pieces) {
      logits = model_logits(*model, tokens);
      return;
    }
    const OwnedCaches caches(2);
    std::vector<at::Tensor> parts = {model_logits(*model, tokens.narrow(1, 0, 3), &caches)};
    for (std::int64_t i = 3; i < 7; ++i)
      parts.push_back(model_logits(*model, tokens.narrow(1, i, 1), &caches, Wants::last_logits));
    logits = at::cat(parts, 1);
  });
  return result;
}

TEST(GptTensorParallelGeneration, LogitsAreThoseOfOneRank) {
  TransformerConfig gpt2 = tiny_gpt();
  gpt2.init_method_std = 0.3;
  for (const TransformerConfig& config : {gpt2, llama()}) {
    const at::Tensor one = logits_of(config, {}, false)[0];
    ASSERT_EQ(one.size(2), config.vocab_size);
    for (const bool sequence_parallel : {false, true}) {
      for (const bool in_pieces : {false, true}) {
        const auto all =
            logits_of(config, {.tp = 4, .sequence_parallel = sequence_parallel}, in_pieces);
        for (const at::Tensor& logits : all) {
          EXPECT_LE(difference(logits, one), 1e-6);  // float32
          EXPECT_TRUE(at::equal(logits, all[0])) << "ranks would sample different tokens";
        }
      }
    }
  }
}

struct Recorder : UnitHooks {
  std::vector<std::string> ops;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  void after_op(const std::string& op, const at::Tensor& output) override {
    ops.push_back(op);
    shapes[op] = output.sizes().vec();
  }
};

Recorder record(const TransformerConfig& config, const TensorLayout& layout) {
  Recorder result;
  const Microbatch batch = patterned_batch(2, 8, config.vocab_size);
  on_tensor_ranks(layout, [&](const Rank& rank, Communicators&) {
    const auto model = make_gpt_model(config, rank, 8);
    ParamStore store(declared_parameters(*model), {});
    store.initialize(1);
    Recorder hooks;
    const UnitHooksScope scope(*model, hooks);
    model->forward_step(batch, true);
    if (rank.index == layout.tp - 1) result = hooks;
  });
  return result;
}

TEST(GptTensorParallelHooks, SeeTheSameOpsInSlices) {
  const Recorder one = record(llama(), {}),
                 many = record(llama(), {.tp = 2, .sequence_parallel = true});
  EXPECT_EQ(many.ops, one.ops);
  const std::string layer = "decoder.layers.1.";
  EXPECT_EQ(many.shapes.at(layer + "mlp_bda"), (std::vector<std::int64_t>{4, 2, 12}));
  EXPECT_EQ(many.shapes.at(layer + "mlp.linear_fc1"), (std::vector<std::int64_t>{8, 2, 20}));
  EXPECT_EQ(many.shapes.at(layer + "self_attention.query"),
            (std::vector<std::int64_t>{8, 2, 2, 4}));
}

}  // namespace
}  // namespace megatron
