// Injects a non-finite value at each kind of place; the trace must name the op, pass and sample.
#include "megatron/training/resilience/diagnosis/op_trace.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/diagnosis/explanation.h"
#include "support/gpt_model.h"

namespace megatron {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

TransformerConfig two_layers() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_attention_heads = config.num_query_groups = 2;
  config.ffn_hidden_size = 16;
  config.max_position_embeddings = 4;
  config.vocab_size = 10;
  config.activation = Activation::squared_relu;
  config.hidden_dropout = config.attention_dropout = 0.1;
  resolve(config);
  return config;
}

/// Two samples of four positions. Only sample 1 holds token 7, at position 2. Ordinals are 40 and
/// 41.
Microbatch two_samples() {
  Microbatch microbatch;
  microbatch.tensors["tokens"] = at::tensor({1, 2, 3, 4, 5, 6, 7, 8}, at::kLong).view({2, 4});
  microbatch.tensors["labels"] = at::tensor({2, 3, 4, 5, 6, 7, 8, 9}, at::kLong).view({2, 4});
  microbatch.tensors["position_ids"] = at::arange(4).repeat({2, 1});
  microbatch.tensors["loss_mask"] = at::ones({2, 4});
  microbatch.sample_ordinals = at::tensor({40, 41}, at::kLong);
  return microbatch;
}

class OpTraceTest : public testing::Test {
 protected:
  OpTraceTest() { weights_.initialize(1); }
  at::Tensor weight(const std::string& name) { return weights_.find(name)->value(); }
  OpTrace trace(const Microbatch& microbatch = two_samples()) {
    return trace_microbatch(*model_, weights_, microbatch);
  }
  /// Returns the trace and checks that it blames `op` in `pass`.
  FirstBadOp blamed(FirstBadOp::Pass pass, const std::string& op,
                    const Microbatch& microbatch = two_samples()) {
    const OpTrace found = trace(microbatch);
    if (!found.first_bad) {
      ADD_FAILURE() << "nothing was found";
      return {};
    }
    EXPECT_EQ(found.first_bad->op, op);
    EXPECT_EQ(found.first_bad->pass, pass);
    text_ = explain(found, weights_, microbatch);
    return *found.first_bad;
  }

  std::unique_ptr<Model> model_ = make_gpt_model(two_layers(), Rank{});
  ParamStore weights_{declared_parameters(*model_), {}};
  std::string text_;
};

using enum FirstBadOp::Pass;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(OpTraceTest, HealthyMicrobatchListsEveryOpWithItsGradient) {
  const OpTrace found = trace();
  EXPECT_FALSE(found.first_bad);
  std::vector<std::string> ops;
  for (const OpRecord& record : found.ops) {
    ops.push_back(record.op);
    ASSERT_TRUE(record.gradient) << record.op;
    EXPECT_EQ(record.gradient->shape, record.output.shape);
  }
  const std::vector<std::string> layer{"self_attention.linear_qkv.layer_norm",
                                       "self_attention.linear_qkv",
                                       "self_attention.query",
                                       "self_attention.key",
                                       "self_attention.value",
                                       "self_attention.core_attention",
                                       "self_attention.linear_proj",
                                       "self_attn_bda",
                                       "mlp.linear_fc1.layer_norm",
                                       "mlp.linear_fc1",
                                       "mlp.activation",
                                       "mlp.linear_fc2",
                                       "mlp_bda"};
  std::vector<std::string> expected{"embedding.word_embeddings", "embedding.position_embeddings",
                                    "embedding.dropout"};
  for (const char* index : {"0", "1"}) {
    for (const std::string& op : layer)
      expected.push_back("decoder.layers." + std::string(index) + "." + op);
  }
  expected.insert(expected.end(), {"decoder.final_layernorm", "loss"});
  EXPECT_EQ(ops, expected);
}

TEST_F(OpTraceTest, RowOfTheEmbedding) {
  weight("embedding.word_embeddings.weight")[7][3].fill_(kNan);
  const FirstBadOp bad = blamed(forward, "embedding.word_embeddings");
  EXPECT_THAT(bad.samples, ElementsAre(1));
  EXPECT_THAT(bad.statistics.first_bad, ElementsAre(2, 1, 3));
  EXPECT_EQ(bad.statistics.num_nan, 1);
  EXPECT_THAT(
      text_,
      HasSubstr(
          "embedding.word_embeddings.weight holds 1 NaN among 1024 elements, the first at [7, 3]"));
  EXPECT_THAT(text_, HasSubstr("in sample 41 of the training order"));
}

TEST_F(OpTraceTest, WeightOfANormInsideALinear) {
  weight("decoder.layers.1.mlp.linear_fc1.layer_norm_weight")[2].fill_(kNan);
  const FirstBadOp bad = blamed(forward, "decoder.layers.1.mlp.linear_fc1.layer_norm");
  EXPECT_THAT(bad.samples, ElementsAre(0, 1));
  EXPECT_EQ(bad.input, "decoder.layers.1.self_attn_bda");
  EXPECT_TRUE(bad.before->finite());
  EXPECT_THAT(text_, HasSubstr("its parameter decoder.layers.1.mlp.linear_fc1.layer_norm_weight "
                               "holds 1 NaN among 8 elements, the first at [2]"));
}

TEST_F(OpTraceTest, FinalNorm) {
  weight("decoder.final_layernorm.bias")[0].fill_(kInf);
  EXPECT_EQ(blamed(forward, "decoder.final_layernorm").statistics.num_inf, 8);
}

TEST_F(OpTraceTest, ProductThatOverflowsAlthoughTheWeightIsFinite) {
  weight("decoder.layers.1.mlp.linear_fc1.weight").mul_(1e25);
  EXPECT_EQ(blamed(forward, "decoder.layers.1.mlp.activation").input,
            "decoder.layers.1.mlp.linear_fc1");
  EXPECT_THAT(text_, HasSubstr("every weight is finite"));
}

TEST_F(OpTraceTest, WeightOfFc2) {
  weight("decoder.layers.0.mlp.linear_fc2.weight")[5][1].fill_(kNan);
  const FirstBadOp bad = blamed(forward, "decoder.layers.0.mlp.linear_fc2");
  EXPECT_THAT(bad.statistics.first_bad, ElementsAre(0, 0, 5));
  EXPECT_EQ(bad.statistics.num_nan, 8);
}

TEST_F(OpTraceTest, AttentionScoresThatOverflow) {
  weight("decoder.layers.0.self_attention.linear_qkv.weight").mul_(1e22);
  const FirstBadOp bad = blamed(forward, "decoder.layers.0.self_attention.core_attention");
  EXPECT_EQ(bad.detail, "scores");
  EXPECT_GT(bad.statistics.num_inf, 0);
  EXPECT_THAT(text_, HasSubstr("its scores query·key of head"));
}

TEST_F(OpTraceTest, Loss) {
  Microbatch microbatch = two_samples();
  microbatch.tensors["loss_mask"][1][2] = kInf;
  const FirstBadOp bad = blamed(forward, "loss", microbatch);
  EXPECT_EQ(bad.what, "sum of the losses");
}

TEST_F(OpTraceTest, LossOfOneTokenNamesItsSample) {
  weight("embedding.word_embeddings.weight")
      .zero_();  // tied weights: only the label row's logits are nonzero, and they overflow float
  weight("embedding.word_embeddings.weight")[9].fill_(3e38f);
  const FirstBadOp bad = blamed(forward, "loss");
  EXPECT_EQ(bad.what, "loss of each token");
}

/// Identity in forward; multiplies the gradient's element `place` by `factor` in backward.
struct SpoilGradient : torch::autograd::Function<SpoilGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    at::Tensor spoilt = gradients[0].clone();
    spoilt.view({-1})[0].fill_(kNan);
    return {spoilt};
  }
};

/// Two ops with a weight between them; the second one corrupts its gradient in backward only.
class BackwardModel : public Model {
 public:
  BackwardModel() : Model(nullptr, "") {
    weight_ = &declare("first.weight",
                       {.sharding = Sharding::replicated({10}), .init = Init::ones(), .tags = {}},
                       Axis{});
  }
  const TransformerConfig& config() const override { return config_; }
  StageOutput forward_chunk(std::int64_t, const Pass& pass, const Activations&) override {
    const Microbatch& microbatch = pass.microbatch;
    const at::Tensor first = tracked(*weight_).index({microbatch.at("tokens").t()}).unsqueeze(2);
    notify_op(unit_hooks_, *this, "first", first);
    const at::Tensor second = SpoilGradient::apply(first * 2.0);
    notify_op(unit_hooks_, *this, "second", second);
    const at::Tensor loss = second.sum();
    notify_op(unit_hooks_, *this, "loss", loss);
    return {.activations = {},
            .loss = StepOutput::of(kLanguageModelLoss, loss, microbatch.at("loss_mask").sum(),
                                   second.detach().squeeze(2).t())};
  }

 private:
  TransformerConfig config_;
  Parameter* weight_ = nullptr;
};

TEST(OpTrace, GradientThatOnlyBackwardSpoils) {
  BackwardModel model;
  ParamStore weights(declared_parameters(model), {});
  weights.initialize(1);
  const OpTrace found = trace_microbatch(model, weights, two_samples());
  ASSERT_TRUE(found.first_bad);
  EXPECT_EQ(found.first_bad->pass, backward);
  EXPECT_EQ(found.first_bad->op, "second");
  EXPECT_THAT(found.first_bad->samples, ElementsAre(0));
  EXPECT_TRUE(found.first_bad->before->finite());
  EXPECT_FALSE(found.ops[0].gradient->finite());
  EXPECT_TRUE(found.ops[1].gradient->finite());
}

TEST_F(OpTraceTest, ParameterGradientThatOverflowsInBackward) {
  // fc2's weight gradient is activationᵀ·gradient: an activation of 1e30 with a loss scale of 1e12
  // overflows float in backward, while forward stays finite.
  weight("decoder.layers.1.mlp.linear_fc1.weight").mul_(1e17);
  weight("decoder.layers.1.mlp.linear_fc2.weight").mul_(1e-34);
  const OpTrace found =
      trace_microbatch(*model_, weights_, two_samples(), {.gradient_factor = 1e12});
  ASSERT_TRUE(found.first_bad);
  EXPECT_EQ(found.first_bad->pass, backward);
  EXPECT_EQ(found.first_bad->op, "decoder.layers.1.mlp.linear_fc2");
  EXPECT_EQ(found.first_bad->what, "gradient of decoder.layers.1.mlp.linear_fc2.weight");
}

}  // namespace
}  // namespace megatron
