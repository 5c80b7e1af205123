// Multi-token prediction: which token each depth reads and predicts, its loss against plain tensor
// operations, and its weights.
#include "megatron/models/multi_token_prediction.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/pass.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::SizeIs;

at::Tensor row(std::vector<std::int64_t> ids) { return at::tensor(ids).unsqueeze(0); }

/// What lies `distance` positions later in a row of tokens 1, 2, 3, …
at::Tensor later(Microbatch microbatch, std::int64_t distance) {
  const TransformerConfig config = tiny_gpt();
  const Rank rank;
  const at::Tensor tokens = row({1, 2, 3, 4, 5, 6});
  microbatch.tensors.emplace("tokens", tokens);
  const ForwardContext context =
      forward_context({.microbatch = microbatch, .training = true}, config, rank);
  return later_rows(tokens, distance, microbatch, context).mine;
}

TEST(MultiTokenPrediction, ReadsNoTokenBehindTheEndOfASequence) {
  const Microbatch plain{.tensors = {{"position_ids", row({0, 1, 2, 3, 4, 5})}},
                         .sample_ordinals = at::tensor({0}, at::kLong)};
  EXPECT_TRUE(later(plain, 1).equal(row({2, 3, 4, 5, 6, 0})));
  EXPECT_TRUE(later(plain, 2).equal(row({3, 4, 5, 6, 0, 0})));
  EXPECT_TRUE(later(plain, 9).equal(row({0, 0, 0, 0, 0, 0})));

  Microbatch reset = plain;  // a document of two tokens and one of four
  reset.tensors["position_ids"] = row({0, 1, 0, 1, 2, 3});
  EXPECT_TRUE(later(reset, 1).equal(row({2, 0, 4, 5, 6, 0})));
  EXPECT_TRUE(later(reset, 2).equal(row({0, 0, 5, 6, 0, 0})));

  Microbatch masked = plain;  // positions go on, attention does not
  masked.tensors["document_ids"] = row({0, 0, 1, 1, 1, 1}).to(at::kInt);
  EXPECT_TRUE(later(masked, 1).equal(row({2, 0, 4, 5, 6, 0})));

  Microbatch packed = plain;
  packed.tensors.erase("position_ids");
  packed.packed = PackedSequences{.cu_seqlens = {0, 1, 3, 6}};
  packed.sample_ordinals = at::tensor({0, 1, 2}, at::kLong);
  EXPECT_TRUE(later(packed, 1).equal(row({0, 3, 0, 5, 6, 0})));
}

class TwoDepths : public testing::Test {
 protected:
  TwoDepths() {
    make_llama(config_);
    config_.hidden_dropout = config_.attention_dropout = 0;
    config_.mtp_num_layers = 2;
    config_.mtp_loss_scaling_factor = 0.4;
    batch_.tensors["loss_mask"][0][2] = 0;
  }
  void make() {
    store_.reset();
    model_ = make_gpt_model(config_, Rank{}, 8);
    store_.emplace(declared_parameters(*model_), ParamStore::Options{.dtype = at::kDouble});
    store_->initialize(3);
  }
  at::Tensor weight(const std::string& name) const { return store_->find(name)->value(); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Parameter* parameter : store_->parameters()) all.push_back(parameter->name());
    return all;
  }
  at::Tensor rms_norm(const at::Tensor& x, const std::string& name) const {
    return x * (x.square().mean(-1, true) + config_.norm_epsilon).rsqrt() * weight(name);
  }

  TransformerConfig config_ = tiny_gpt();
  Microbatch batch_ = patterned_batch(2, 6, 13);
  std::unique_ptr<Model> model_;
  std::optional<ParamStore> store_;
};

/// Layers whose projections are zero return their input, so that only what is new is left.
TEST_F(TwoDepths, HaveTheLossOfPlainTensorOperations) {
  make();
  const at::NoGradGuard no_gradients;
  for (const char* layer : {"mtp.layers.0.transformer_layer.", "mtp.layers.1.transformer_layer."})
    for (const char* projection : {"self_attention.linear_proj.weight", "mlp.linear_fc2.weight"})
      weight(layer + std::string(projection)).zero_();
  const StepOutput output = model_->forward_step(batch_, /*training=*/true);
  EXPECT_THAT(model_->objective().names, ElementsAre("lm loss", "mtp_1 loss", "mtp_2 loss"));
  ASSERT_THAT(output.terms, SizeIs(3));
  at::Tensor rows = model_->infer({.microbatch = batch_, .wants = Wants::hidden}).to(at::kDouble);
  at::Tensor expected = output.terms[0].sum;
  for (std::int64_t depth = 1; depth <= 2; ++depth) {
    const std::string layer = "mtp.layers." + std::to_string(depth - 1) + ".";
    const auto shifted = [&](const char* field) {
      const at::Tensor& all = batch_.at(field);
      return at::cat({all.narrow(1, depth, 6 - depth), all.new_zeros({2, depth})}, 1);
    };
    const at::Tensor embedded =
        weight("embedding.word_embeddings.weight").index_select(0, shifted("tokens").flatten());
    rows = at::linear(at::cat({rms_norm(embedded.view({2, 6, -1}), layer + "enorm.weight"),
                               rms_norm(rows, layer + "hnorm.weight")},
                              -1),
                      weight(layer + "eh_proj.weight"));
    rows = rms_norm(rows, layer + "final_layernorm.weight");
    const at::Tensor losses = -at::linear(rows, weight("output_layer.weight").narrow(0, 0, 13))
                                   .log_softmax(-1)
                                   .gather(-1, shifted("labels").unsqueeze(-1))
                                   .squeeze(-1);
    const at::Tensor mask = shifted("loss_mask"), sum = (losses * mask).sum();
    const LossTerm& term = output.terms[static_cast<std::size_t>(depth)];
    EXPECT_NEAR(term.sum.item<double>(), sum.item<double>(), 1e-5);
    EXPECT_EQ(term.count.item<double>(), mask.sum().item<double>());
    expected = expected + sum * (0.4 / 2 * output.count / mask.sum());
  }
  EXPECT_EQ(output.count.item<double>(), 11);
  EXPECT_EQ(output.terms[2].count.item<double>(), 7);
  EXPECT_NEAR(output.root.item<double>(), expected.item<double>(), 1e-5);
}

TEST_F(TwoDepths, RunAloneHaveTheLogitsOfTheirLoss) {
  make();
  const at::NoGradGuard no_gradients;
  const StepOutput output = model_->forward_step(batch_, /*training=*/true);
  at::Tensor rows;
  model_->infer({.microbatch = batch_, .wants = Wants::logits, .rows = &rows});
  for (std::int64_t depth = 1; depth <= 2; ++depth) {
    const auto shifted = [&](const char* field) {
      const at::Tensor& all = batch_.at(field);
      return at::cat({all.narrow(1, depth, 6 - depth), all.new_zeros({2, depth})}, 1);
    };
    Microbatch later = batch_;
    later.tensors["tokens"] = shifted("tokens");
    later.tensors["previous_rows"] = rows;
    const at::Tensor logits =
        model_->infer({.microbatch = later, .wants = Wants::logits, .depth = depth, .rows = &rows});
    const at::Tensor losses = -logits.to(at::kDouble)
                                   .log_softmax(-1)
                                   .gather(-1, shifted("labels").unsqueeze(-1))
                                   .squeeze(-1);
    EXPECT_NEAR((losses * shifted("loss_mask")).sum().item<double>(),
                output.terms[static_cast<std::size_t>(depth)].sum.item<double>(), 1e-5);
  }
}

TEST_F(TwoDepths, AreLeftOutOfInference) {
  make();
  const at::Tensor logits = model_->infer({.microbatch = batch_, .wants = Wants::logits}),
                   losses = model_->infer({.microbatch = batch_, .wants = Wants::token_losses});
  config_.mtp_num_layers = 0;
  make();  // weights are drawn by name, so the others have the same
  EXPECT_TRUE(model_->infer({.microbatch = batch_, .wants = Wants::logits}).equal(logits));
  EXPECT_TRUE(model_->infer({.microbatch = batch_, .wants = Wants::token_losses}).equal(losses));
}

TEST_F(TwoDepths, HaveMegatronsNames) {
  make();
  EXPECT_THAT(names(), Contains("mtp.layers.1.transformer_layer.mlp.linear_fc1.layer_norm_weight"));
  EXPECT_EQ(
      std::ranges::count_if(names(), [](const auto& name) { return name.starts_with("mtp"); }),
      2 * 10);
  config_.mtp_use_repeated_layer = true;
  make();
  EXPECT_EQ(
      std::ranges::count_if(names(), [](const auto& name) { return name.starts_with("mtp"); }), 10);
}

/// Returns the name that a weight of a hybrid pattern "*-*-/*-" has in a GPT.
std::string name_in_gpt(const std::string& name) {
  const std::regex layer(R"((decoder\.)layers\.(\d)\.(.*))"),
      of_depth(R"((mtp\.layers\.\d\.)mtp_model_layer\.layers\.\d\.(.*))");
  std::smatch parts;
  if (std::regex_match(name, parts, layer))
    return parts.str(1) + "layers." + std::to_string(std::stoi(parts.str(2)) / 2) + "." +
           parts.str(3);
  if (std::regex_match(name, parts, of_depth))
    return parts.str(1) + "transformer_layer." + parts.str(2);
  return name == "decoder.final_norm.weight" ? "decoder.final_layernorm.weight" : name;
}

TEST_F(TwoDepths, OfAHybridPatternComputeWhatTheirBlocksDoInAGpt) {
  make();
  TransformerConfig config = config_;
  config.mtp_num_layers = 0;
  config.hybrid_layer_pattern = "*-*-/*-/*-";
  resolve_layers(config);
  EXPECT_EQ(config.mtp_num_layers, 2);
  const auto hybrid = make_model(hybrid_spec(config), config, Rank{}, {.vocab_pad_multiple = 8});
  ParamStore store(declared_parameters(*hybrid), {.dtype = at::kDouble});
  ASSERT_EQ(store.parameters().size(), store_->parameters().size());
  const at::NoGradGuard no_gradients;
  for (Parameter* parameter : store.parameters())
    parameter->value().copy_(weight(name_in_gpt(parameter->name())));
  const StepOutput ours = hybrid->forward_step(batch_, /*training=*/true),
                   theirs = model_->forward_step(batch_, /*training=*/true);
  EXPECT_TRUE(ours.root.equal(theirs.root));
  ASSERT_THAT(ours.terms, SizeIs(3));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(ours.terms[i].sum.equal(theirs.terms[i].sum));
}

}  // namespace
}  // namespace megatron
