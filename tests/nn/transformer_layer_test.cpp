// Layers as lists of blocks: layers of one block, names of ops, and what policies and published
// tensors must not change.
#include "megatron/nn/transformer_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/mlp.h"
#include "megatron/nn/self_attention.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kHidden = 8;

TransformerConfig small_config(std::int64_t num_layers) {
  TransformerConfig config;
  config.num_layers = num_layers;
  config.hidden_size = kHidden;
  config.num_attention_heads = 2;
  config.kv_channels = 4;
  config.ffn_hidden_size = 12;
  config.hidden_dropout = config.attention_dropout = 0;
  config.init_method_std = 0.4;
  return config;
}

BlockSpec attention() {
  return {.name = "self_attention",
          .site = "self_attn_bda",
          .post_norm = "post_self_attn_layernorm",
          .make = make_sublayer<SelfAttention>};
}
BlockSpec mlp() {
  return {.name = "mlp",
          .site = "mlp_bda",
          .post_norm = "post_mlp_layernorm",
          .make = make_sublayer<Mlp>};
}

std::vector<BlockSpec> both_blocks(const LayerKind&, std::int64_t) { return {attention(), mlp()}; }
std::vector<BlockSpec> in_turns(const LayerKind&, std::int64_t layer) {
  return {layer % 2 == 0 ? attention() : mlp()};
}

struct Stack {
  Stack(std::int64_t num_layers, const TransformerLayerSpec& spec, ActivationPlan given = {},
        TransformerConfig model = {})
      : config(model.num_layers > 0 ? std::move(model) : small_config(num_layers)),
        plan(std::move(given)),
        block(&root, "decoder", spec, {.config = config, .rank = rank, .activations = &plan},
              layers(num_layers), /*has_final_norm=*/true),
        parameters(declared_parameters(root)),
        store(parameters, {.dtype = at::kDouble}) {
    store.initialize(1);
    for (std::size_t i = 0; i < parameters.size(); ++i) {  // equal in all stacks
      at::Tensor value = parameters[i]->value();
      value.copy_(random_input(value.sizes(), 0.4, static_cast<double>(i)).detach());
    }
  }
  static std::vector<std::int64_t> layers(std::int64_t count) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(i);
    return all;
  }
  at::Tensor run(const at::Tensor& x, const ForwardContext& context = {}) {
    return block.finish(block.forward(x, context, 0, block.num_layers()), context);
  }
  /// The result, the gradient of the input, and those of the weights.
  std::vector<at::Tensor> pass(ForwardContext context = {}) {
    const at::Tensor x = random_input({5, 2, kHidden});
    store.zero_gradients();
    const at::Tensor y = run(x, context);
    weighted_sum(y).backward();
    std::vector<at::Tensor> all{y.detach(), x.grad()};
    for (const Parameter* parameter : parameters) all.push_back(parameter->grad().clone());
    return all;
  }

  Rank rank;
  TransformerConfig config;
  ActivationPlan plan;
  BareModule root;
  TransformerBlock block;
  std::vector<Parameter*> parameters;
  ParamStore store;
};

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

/// Collects the names of ops.
struct Names : UnitHooks {
  void after_op(const std::string& op, const at::Tensor&) override { names.push_back(op); }
  std::vector<std::string> names;
};

TEST(TransformerLayer, OfOneBlockEachEqualOnesOfTwo) {
  Stack two(2, {.blocks = both_blocks}), one(4, {.blocks = in_turns});
  expect_equal(one.pass(), two.pass());
  EXPECT_EQ(one.parameters.back()->name(), "decoder.final_layernorm.bias");
  const Stack hybrid(2, {.blocks = in_turns, .final_norm = "final_norm"});
  EXPECT_EQ(hybrid.parameters.back()->name(), "decoder.final_norm.bias");
}

TEST(TransformerLayer, ScalesABlock) {
  const auto scaled = [](double scale) {
    const auto blocks = [scale](const LayerKind&, std::int64_t) {
      BlockSpec block = mlp();
      block.residual_scale = scale;
      return std::vector<BlockSpec>{block};
    };
    Stack stack(1, {.blocks = blocks});
    const at::Tensor x = random_input({5, 2, kHidden});
    return stack.block.forward(x, {}, 0, 1) - x;
  };
  EXPECT_LT(difference(scaled(0.25), scaled(1) * 0.25), 1e-14);
}

TEST(TransformerLayer, NamesItsOps) {
  for (const char* norm : {"pre", "post"}) {
    TransformerConfig config = small_config(1);
    const bool is_pre = std::string(norm) == "pre";
    if (!is_pre) config.norm_placement = NormPlacement::post;
    Stack stack(1, {.blocks = both_blocks}, {}, config);
    Names hooks;
    ForwardContext context;
    context.hooks = &hooks;
    stack.run(random_input({5, 2, kHidden}), context);
    std::vector<std::string> expected;
    const auto add = [&](const std::string& name) { expected.push_back("decoder." + name); };
    const std::string attention = "layers.0.self_attention.", mlp = "layers.0.mlp.";
    if (is_pre) add(attention + "linear_qkv.layer_norm");
    for (const char* op : {"linear_qkv", "query", "key", "value", "core_attention", "linear_proj"})
      add(attention + op);
    add("layers.0.self_attn_bda");
    add(is_pre ? mlp + "linear_fc1.layer_norm" : "layers.0.post_self_attn_layernorm");
    for (const char* op : {"linear_fc1", "activation", "linear_fc2"}) add(mlp + op);
    add("layers.0.mlp_bda");
    add(is_pre ? "final_layernorm" : "layers.0.post_mlp_layernorm");
    EXPECT_EQ(hooks.names, expected) << norm;
  }
}

/// Returns policies of two layers alike.
ActivationPlan both(const LayerPolicy& policy) { return {.layers = {policy, policy}}; }

TEST(TransformerLayer, PoliciesChangeNothing) {
  using enum LayerNode;
  for (const auto& blocks : {both_blocks, in_turns}) {
    const auto expected = Stack(2, {.blocks = blocks}).pass();
    for (const LayerPolicy& policy :
         {LayerPolicy{.full = true}, LayerPolicy{.full = true, .joins_previous = true},
          LayerPolicy{.recomputed = {layernorm}}, LayerPolicy{.recomputed = {layernorm, mlp}}}) {
      Names hooks;
      ForwardContext context;
      context.hooks = &hooks;
      Stack stack(2, {.blocks = blocks}, both(policy));
      expect_equal(stack.pass(), expected);
      stack.pass(context);
      EXPECT_EQ(hooks.names.size(), blocks == both_blocks ? 27 : 14) << "of the first run alone";
    }
  }
}

/// Adds what it reads, and publishes its output.
class Sharing : public Mlp {
 public:
  Sharing(Module* parent, std::string_view name, const LayerArguments& arguments)
      : Mlp(parent, name, arguments), layer_(arguments.layer_index) {}
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    at::Tensor out = Mlp::forward(input, context);
    if (layer_ == 1) context.publish("memory", out);
    return layer_ == 3 ? out + context.published("memory") : out;
  }

 private:
  std::int64_t layer_;
};

std::vector<BlockSpec> sharing(const LayerKind&, std::int64_t layer) {
  BlockSpec block = mlp();
  block.make = make_sublayer<Sharing>;
  if (layer == 1) block.publishes = {{.key = "memory", .row_shape = {kHidden}}};
  if (layer == 3) block.reads = {"memory"};
  return {block};
}

TEST(PublishedTensors, ReachLaterLayersWithTheirGradients) {
  const auto pass = [](const ActivationPlan& plan) {
    Stack stack(4, {.blocks = sharing}, plan);
    ForwardContext context;
    context.published_tensors = std::make_shared<Published>();
    return stack.pass(context);
  };
  const auto expected = pass({});
  const LayerPolicy full{.full = true}, joined{.full = true, .joins_previous = true};
  expect_equal(pass({.layers = {full, full, full, full}}), expected);
  expect_equal(pass({.layers = {full, joined, full, joined}}), expected);
  expect_equal(pass({.layers = {full, joined, joined, joined}}), expected);
  expect_equal(pass({.layers = {{}, full, {}, {}}}), expected);
  Stack stack(4, {.blocks = sharing});
  const at::Tensor x = random_input({3, 2, kHidden});
  check_gradients(
      [&] {
        ForwardContext context;
        context.published_tensors = std::make_shared<Published>();
        return weighted_sum(stack.run(x, context));
      },
      {x}, &stack.store);
}

TEST(PublishedTensors, CrossTheBordersBetweenPublisherAndReader) {
  const TransformerConfig config = small_config(4);
  const auto count = [&](std::int64_t border) {
    return published_across({.blocks = sharing}, config, border).size();
  };
  EXPECT_THAT((std::vector{count(1), count(2), count(3), count(4)}),
              testing::ElementsAre(0, 1, 1, 0));
}

}  // namespace
}  // namespace megatron
