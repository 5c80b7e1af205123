// A dense model and the model with experts made from it have the same results where the mathematics
// says so: with probabilities that sum to 1, and copies or all parts of one MLP.
#include "megatron/checkpoint/upcycle.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/rand_like.h>
#include <gtest/gtest.h>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/temporary_folder.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

TransformerConfig dense_model(Activation activation, bool gated, bool biases) {
  TransformerConfig model = tiny_llama();
  model.activation = activation;
  model.gated_linear_unit = gated;
  model.add_bias_linear = biases;
  return model;
}

MoeConfig experts(std::int64_t count, std::int64_t topk) {
  MoeConfig moe;
  moe.num_experts = count;
  moe.router_topk = topk;
  return moe;
}

/// A dense checkpoint whose weights, biases included, are all random.
class Dense {
 public:
  explicit Dense(const TransformerConfig& config) {
    TinyRun run(3, config);
    for (const Parameter* parameter : run.store->parameters()) {
      if (parameter->name().ends_with("bias"))
        at::Tensor(parameter->value()).copy_(at::rand_like(parameter->value()).sub_(0.5));
    }
    save_checkpoint(root_ / "dense", run.request(5));
  }
  CheckpointSource source() const { return *find_checkpoint(root_ / "dense"); }
  /// Writes the model with experts and returns it.
  CheckpointSource upcycled(const UpcycleRequest& request) const {
    write_upcycled(source(), request, root_ / "experts");
    return *find_checkpoint(root_ / "experts");
  }

 private:
  TemporaryFolder root_;
};

double loss_of(const CheckpointSource& source) {
  TinyRun run(1, source.model);
  load_weights(source, *run.store);
  const StepOutput output =
      run.model->forward_step(patterned_batch(2, 8, source.model.vocab_size), false);
  return output.root.item<double>() / output.count.item<double>();
}

TEST(Upcycle, CopiesComputeWhatTheDenseMlpComputes) {
  for (const bool gated : {false, true}) {
    const Dense dense(dense_model(gated ? Activation::silu : Activation::gelu, gated, !gated));
    const CheckpointSource source = dense.upcycled({.experts = experts(4, 2)});
    EXPECT_TRUE(source.is_release);
    EXPECT_EQ(source.model.moe.num_experts, 4);
    EXPECT_EQ(source.model.moe.ffn_hidden_size, 24);
    EXPECT_NEAR(loss_of(source), loss_of(dense.source()), 1e-6);
  }
}

// The two parts of an MLP have equal scores, so the best two experts are one whole MLP, each with a
// probability of 1/2. With (w·x)² a factor of w is exact: the scale 2^(1/3) of both linear layers
// makes 2.
TEST(Upcycle, PartsOfAnMlpAddUpToIt) {
  const Dense dense(dense_model(Activation::squared_relu, false, false));
  const CheckpointSource source =
      dense.upcycled({.experts = experts(6, 2), .granularity = 2, .init_method_std = 0.5});
  EXPECT_EQ(source.model.moe.ffn_hidden_size, 12);
  EXPECT_NEAR(loss_of(source), loss_of(dense.source()), 1e-6);
}

// With a softmax over all experts the probabilities of the chosen ones sum to k/E at first, when
// the router is zero; the scale E·G/k makes up for it. The factor --moe-router-topk-scaling-factor
// does so as well.
TEST(Upcycle, TheScaleMakesUpForProbabilitiesBelowOne) {
  const Dense dense(dense_model(Activation::squared_relu, false, true));
  MoeConfig pre_softmax = experts(6, 3);
  pre_softmax.router_pre_softmax = true;
  EXPECT_NEAR(loss_of(dense.upcycled({.experts = pre_softmax, .init_method_std = 1e-9})),
              loss_of(dense.source()), 1e-6);
  const Dense again(dense_model(Activation::squared_relu, false, true));
  pre_softmax.router_topk_scaling_factor = 2.5;
  EXPECT_NEAR(loss_of(again.upcycled({.experts = pre_softmax, .init_method_std = 1e-9})),
              loss_of(again.source()), 1e-6);
}

// One expert of several has a probability of σ(0) = 1/2 or √softplus(0) = √ln 2.
TEST(Upcycle, TheScaleMakesUpForScoresOfOneExpert) {
  for (const RouterScore score : {RouterScore::sigmoid, RouterScore::sqrtsoftplus}) {
    const Dense dense(dense_model(Activation::squared_relu, false, true));
    MoeConfig moe = experts(4, 1);
    moe.router_score_function = score;
    EXPECT_NEAR(loss_of(dense.upcycled({.experts = moe, .init_method_std = 1e-9})),
                loss_of(dense.source()), 1e-6);
  }
}

TEST(Upcycle, DividesGateAndUpAlike) {
  const Dense dense(dense_model(Activation::silu, true, true));
  const UpcycleRequest request{.experts = experts(4, 2), .granularity = 2};
  const auto reader = open_upcycled(dense.source(), request);
  const auto stored = open_weights(dense.source());
  const std::string layer = "decoder.layers.1.mlp.";
  const double scale = std::cbrt(2.0);
  const at::Tensor fc1 = stored->read(layer + "linear_fc1.weight"),
                   bias = stored->read(layer + "linear_fc1.bias"),
                   fc2 = stored->read(layer + "linear_fc2.weight");
  for (std::int64_t expert = 0; expert < 4; ++expert) {
    const std::int64_t first = expert % 2 * 12;
    const at::Tensor mine = reader->read(layer + "experts.linear_fc1.weight")[expert];
    EXPECT_TRUE(mine.narrow(0, 0, 12).allclose(fc1.narrow(0, first, 12) * scale));
    EXPECT_TRUE(mine.narrow(0, 12, 12).allclose(fc1.narrow(0, 24 + first, 12) * scale));
    EXPECT_TRUE(reader->read(layer + "experts.linear_fc1.bias")[expert].narrow(0, 12, 12).allclose(
        bias.narrow(0, 24 + first, 12) * scale));
    EXPECT_TRUE(reader->read(layer + "experts.linear_fc2.weight")[expert].allclose(
        fc2.narrow(1, first, 12) * scale));
    EXPECT_TRUE(reader->read(layer + "experts.linear_fc2.bias")[expert].equal(
        stored->read(layer + "linear_fc2.bias")));
  }
  const at::Tensor router = reader->read(layer + "router.weight");
  EXPECT_TRUE(router[0].equal(router[1]) && router[2].equal(router[3]));
  EXPECT_FALSE(router[0].equal(router[2]));
  EXPECT_TRUE(reader->read("decoder.layers.1.pre_mlp_layernorm.weight")
                  .equal(stored->read(layer + "linear_fc1.layer_norm_weight")));
}

TEST(Upcycle, LayersWithoutExpertsKeepTheirMlp) {
  const Dense dense(tiny_llama());
  MoeConfig moe = experts(4, 2);
  moe.layer_freq = "[0,1]";
  const CheckpointSource source = dense.upcycled({.experts = moe});
  EXPECT_NEAR(loss_of(source), loss_of(dense.source()), 1e-6);
}

TEST(Upcycle, RefusesWhatItCannotDivide) {
  const Dense dense(tiny_llama());
  const auto expect = [&](const UpcycleRequest& request, const std::string& text) {
    expect_user_error([&] { upcycled_architecture(dense.source(), request); }, {text});
  };
  expect({.experts = experts(4, 2), .granularity = 5}, "use a divisor of both, such as 4");
  expect({.experts = experts(3, 2), .granularity = 2}, "use a divisor of both, such as 3");
  MoeConfig wide = experts(4, 2);
  wide.ffn_hidden_size = 16;
  expect({.experts = wide}, "--moe-ffn-hidden-size is 16");
  MoeConfig on_input = experts(4, 1);
  on_input.router_score_function = RouterScore::sigmoid;
  on_input.apply_probs_on_input = true;
  expect({.experts = on_input}, "leave --moe-apply-probs-on-input out");
  MoeConfig latent = experts(4, 2);
  latent.latent_size = 8;
  expect({.experts = latent}, "leave --moe-latent-size out");
  const CheckpointSource source = dense.upcycled({.experts = experts(4, 2)});
  expect_user_error([&] { upcycled_architecture(source, {.experts = experts(8, 2)}); },
                    {"has experts already"});
}

}  // namespace
}  // namespace megatron
