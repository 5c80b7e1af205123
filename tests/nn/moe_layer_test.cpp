// The block of experts in float64: its values against a loop over experts, and its gradients, those
// of the auxiliary losses included, against central differences.
#include "megatron/nn/moe/moe_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/moe/load_balancing.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kPositions = 5, kSamples = 3, kHidden = 8;

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = kHidden;
  config.num_attention_heads = config.num_query_groups = 2;
  config.kv_channels = 4;
  config.ffn_hidden_size = 12;
  config.activation = Activation::silu;
  config.gated_linear_unit = true;
  config.add_bias_linear = false;
  config.normalization = Normalization::RMSNorm;
  config.init_method_std = 0.4;
  config.moe.num_experts = 6;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 6;
  return config;
}

/// A block and its weights.
struct Block {
  explicit Block(TransformerConfig given, at::ScalarType type = at::kDouble)
      : config(std::move(given)),
        layer(&root, "mlp", {.config = config, .rank = rank, .has_input_norm = false}),
        store(declared_parameters(root), {.dtype = type}) {
    store.initialize(5);
    for (const Parameter* parameter : store.parameters()) {
      at::Tensor value = parameter->value();  // nothing neutral
      if (parameter->name().ends_with("bias"))
        value.copy_(random_input(value.sizes(), 0.3, 2).detach());
    }
  }
  at::Tensor value(const std::string& name) const { return store.find("mlp." + name)->value(); }

  Rank rank;
  TransformerConfig config;
  BareModule root;
  MoeLayer layer;
  ParamStore store;
};

ForwardContext training_context() {
  ForwardContext context;
  context.seed = 3;
  context.training = true;
  context.sample_ordinals = at::arange(kSamples, at::kLong);
  context.aux_loss_gradient = at::tensor(1.0, at::kDouble);
  return context;
}

at::Tensor input() { return random_input({kPositions, kSamples, kHidden}, 1.5); }

at::Tensor activated(const at::Tensor& x, const TransformerConfig& config) {
  const auto f = [&](const at::Tensor& h) {
    switch (config.activation) {
      case Activation::silu:
        return at::silu(h);
      case Activation::quick_gelu:
        return h * at::sigmoid(h * 1.702);
      case Activation::gelu:
        return at::gelu(h);
      default:
        return at::relu(h).square();
    }
  };
  if (!config.gated_linear_unit) return f(x);
  const std::int64_t width = x.size(-1) / 2;
  at::Tensor gate = x.narrow(-1, 0, width), up = x.narrow(-1, width, width);
  if (const std::optional<double> c = config.activation_func_clamp_value) {
    gate = gate.clamp_max(*c);
    up = up.clamp(-*c, *c);
  }
  return f(gate) * (up + config.glu_linear_offset);
}

/// The experts of GPT-OSS, with a clamp that limits some of the numbers.
void use_clamped_gate(TransformerConfig& config) {
  config.activation = Activation::quick_gelu;
  config.activation_func_clamp_value = 0.9;
  config.glu_linear_offset = 1;
  config.add_bias_linear = true;
}

/// Computes y for each token by the definition: softmax over the chosen logits.
at::Tensor by_definition(const Block& block, const at::Tensor& input_sbh) {
  const TransformerConfig& config = block.config;
  const at::Tensor x = input_sbh.reshape({-1, kHidden});
  at::Tensor logits = at::matmul(x, block.value("router.weight").t());
  if (config.add_bias_linear) logits = logits + block.value("router.bias");
  const auto [best, chosen] = logits.topk(config.moe.router_topk);
  const at::Tensor probs = at::softmax(best, -1);
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    for (std::int64_t i = 0; i < config.moe.router_topk; ++i) {
      const std::int64_t e = chosen[t][i].item<std::int64_t>();
      at::Tensor hidden = at::matmul(block.value("experts.linear_fc1.weight")[e], x[t]);
      if (config.add_bias_linear) hidden = hidden + block.value("experts.linear_fc1.bias")[e];
      at::Tensor out =
          at::matmul(block.value("experts.linear_fc2.weight")[e], activated(hidden, config));
      if (config.add_bias_linear) out = out + block.value("experts.linear_fc2.bias")[e];
      y[t] += probs[t][i] * out;
    }
  }
  if (config.moe.shared_expert_intermediate_size > 0) {
    const at::Tensor shared = at::matmul(
        activated(at::matmul(x, block.value("shared_experts.linear_fc1.weight").t()), config),
        block.value("shared_experts.linear_fc2.weight").t());
    y = y +
        (config.moe.shared_expert_gate
             ? shared * at::sigmoid(at::matmul(x, block.value("shared_experts.gate_weight").t()))
             : shared);
  }
  return y.view(input_sbh.sizes());
}

TEST(MoeLayer, EqualsALoopOverExperts) {
  const std::vector<std::function<void(TransformerConfig&)>> variants = {
      [](TransformerConfig&) {},
      [](TransformerConfig& c) { c.add_bias_linear = true; },
      [](TransformerConfig& c) { c.activation = Activation::gelu; },
      [](TransformerConfig& c) {
        c.activation = Activation::squared_relu;
        c.gated_linear_unit = false;
      },
      [](TransformerConfig& c) { c.moe.router_topk = 6; },
      use_clamped_gate,
      [](TransformerConfig& c) { c.activation_func_clamp_value = 0.6; },
      [](TransformerConfig& c) {
        c.moe.shared_expert_intermediate_size = 10;
        c.moe.shared_expert_gate = true;
      }};
  for (std::size_t i = 0; i < variants.size(); ++i) {
    SCOPED_TRACE("variant " + std::to_string(i));
    TransformerConfig config = small_config();
    variants[i](config);
    Block block(config);
    const at::Tensor x = input().detach();
    EXPECT_LE(difference(block.layer.forward(x, {}), by_definition(block, x)), 1e-13);
    // In float32 one position by itself has the bits that it has among others.
    Block rounded(config, at::kFloat);
    const at::Tensor rows = x.to(at::kFloat);
    EXPECT_TRUE(rounded.layer.forward(rows.narrow(0, 2, 1), {})
                    .equal(rounded.layer.forward(rows, {}).narrow(0, 2, 1)));
  }
}

/// Variants of training, each with losses whose gradients meet in the router.
std::vector<std::function<void(TransformerConfig&)>> training_variants() {
  return {
      [](TransformerConfig& c) { c.moe.aux_loss_coeff = {0.7}; },
      use_clamped_gate,
      [](TransformerConfig& c) {
        c.moe.router_load_balancing_type = {LoadBalancing::seq_aux_loss};
        c.moe.aux_loss_coeff = {0.9};
        c.moe.z_loss_coeff = 0.2;
      },
      [](TransformerConfig& c) {
        c.moe.router_load_balancing_type = {LoadBalancing::aux_loss, LoadBalancing::seq_aux_loss};
        c.moe.aux_loss_coeff = {0.5, 0.25};
        c.moe.router_score_function = RouterScore::sigmoid;
        c.moe.router_topk_scaling_factor = 1.7;
        c.moe.router_enable_expert_bias = true;
      },
      [](TransformerConfig& c) {
        c.add_bias_linear = true;
        c.moe.router_pre_softmax = true;
        c.moe.router_num_groups = 3;
        c.moe.router_group_topk = 2;
        c.moe.aux_loss_coeff = {0.3};
      },
      [](TransformerConfig& c) {
        c.moe.expert_capacity_factor = 0.6;
        c.moe.pad_expert_input_to_capacity = true;
      },
      [](TransformerConfig& c) {
        c.moe.expert_capacity_factor = 0.5;
        c.moe.token_drop_policy = TokenDropPolicy::position;
        c.moe.router_score_function = RouterScore::sqrtsoftplus;
      },
      [](TransformerConfig& c) {
        c.moe.router_topk = 1;
        c.moe.router_pre_softmax = true;
        c.moe.apply_probs_on_input = true;
        c.moe.input_jitter_eps = 0.1;
      },
      [](TransformerConfig& c) {
        c.moe.latent_size = 4;
        c.moe.shared_expert_intermediate_size = 6;
        c.moe.shared_expert_gate = true;
      },
      [](TransformerConfig& c) {
        c.moe.router_load_balancing_type = {LoadBalancing::sinkhorn};
        c.moe.aux_loss_coeff = {0};
      },
      [](TransformerConfig& c) {
        c.moe.router_load_balancing_type = {LoadBalancing::global_aux_loss};
        c.moe.aux_loss_coeff = {0.4};
        c.moe.router_dtype = RouterDtype::fp64;
      }};
}

/// Returns Σ coefficient · loss of the routers' auxiliary losses in the last forward pass.
double auxiliary_losses(Block& block) {
  const MoeConfig& moe = block.config.moe;
  const double* sums =
      block.layer.router().statistics().sums.const_data_ptr<double>() + moe.num_experts;
  return moe.coefficient(LoadBalancing::aux_loss) * sums[RoutingStatistics::aux_loss] +
         moe.coefficient(LoadBalancing::seq_aux_loss) * sums[RoutingStatistics::seq_aux_loss] +
         moe.coefficient(LoadBalancing::global_aux_loss) *
             sums[RoutingStatistics::global_aux_loss] +
         moe.z_loss_coeff.value_or(0) * sums[RoutingStatistics::z_loss];
}

TEST(MoeLayer, GradientsEqualCentralDifferences) {
  const auto variants = training_variants();
  for (std::size_t i = 0; i < variants.size(); ++i) {
    SCOPED_TRACE("variant " + std::to_string(i));
    TransformerConfig config = small_config();
    variants[i](config);
    Block block(config);
    const at::Tensor x = input();
    const auto loss = [&] {
      block.layer.router().begin_step();
      const at::Tensor y = weighted_sum(block.layer.forward(x, training_context()));
      return y + auxiliary_losses(block);
    };
    std::vector<Parameter*> trained;
    for (Parameter* parameter : block.store.parameters())
      if (parameter->is_trained()) trained.push_back(parameter);
    block.store.zero_gradients();
    loss().backward();
    block.store.finalize_gradients();
    compare_gradient(loss, x, x.grad(), "input", {});
    for (const Parameter* parameter : trained)
      compare_gradient(loss, parameter->value(), parameter->grad().clone(), parameter->name(), {});
  }
}

/// E·Σ f_e·P_e over a run of tokens, with the shares f of the k·T choices and mean scores P.
double balance_by_definition(const at::Tensor& scores, std::int64_t k) {
  const std::int64_t experts = scores.size(1), tokens = scores.size(0);
  const at::Tensor chosen = std::get<1>(scores.topk(k));
  const at::Tensor f = at::one_hot(chosen, experts).to(at::kDouble).sum(at::IntArrayRef({0, 1})) /
                       static_cast<double>(k * tokens);
  return static_cast<double>(experts) * (f * scores.mean(0)).sum().item<double>();
}

TEST(MoeLayer, AuxiliaryLossesEqualTheirDefinitions) {
  TransformerConfig config = small_config();
  config.moe.router_load_balancing_type = {LoadBalancing::aux_loss, LoadBalancing::seq_aux_loss,
                                           LoadBalancing::global_aux_loss};
  config.moe.aux_loss_coeff = {0.5, 0.25, 0.125};
  config.moe.z_loss_coeff = 0.1;
  Block block(config);
  const at::Tensor x = input().detach();
  block.layer.forward(x, training_context());
  const double* sums = block.layer.router().statistics().sums.const_data_ptr<double>() + 6;

  const at::Tensor logits_sbe = at::matmul(x, block.value("router.weight").t()),
                   scores_sbe = at::softmax(logits_sbe, -1), scores = scores_sbe.flatten(0, 1);
  EXPECT_NEAR(sums[RoutingStatistics::aux_loss], balance_by_definition(scores, 2), 1e-13);
  EXPECT_NEAR(sums[RoutingStatistics::global_aux_loss], balance_by_definition(scores, 2), 1e-13);
  double of_samples = 0;
  for (std::int64_t b = 0; b < kSamples; ++b)
    of_samples += balance_by_definition(scores_sbe.select(1, b), 2) / kSamples;
  EXPECT_NEAR(sums[RoutingStatistics::seq_aux_loss], of_samples, 1e-13);
  EXPECT_NEAR(sums[RoutingStatistics::z_loss],
              at::logsumexp(logits_sbe, -1).square().mean().item<double>(), 1e-13);
}

/// Three documents of different lengths in one row.
struct PackedDocuments {
  SequencePlacement placement = whole_placement(15, {0, 4, 5, 15});
  ForwardContext context() const {
    ForwardContext context = training_context();
    const auto [positions, sequences] = rows_in_sequences(placement.runs_of[0], placement);
    context.placement = std::make_shared<const SequencePlacement>(placement);
    context.row_positions = {.each = positions,
                             .ordinals = context.sample_ordinals.index_select(0, sequences),
                             .sequences = sequences};
    return context;
  }
};

/// The loss of packed documents is the mean over their tokens of the loss of each document.
TEST(MoeLayer, PackedSequencesAreBalancedApart) {
  TransformerConfig config = small_config();
  config.moe.router_load_balancing_type = {LoadBalancing::aux_loss, LoadBalancing::seq_aux_loss};
  config.moe.aux_loss_coeff = {0.5, 0.8};
  Block block(config);
  const PackedDocuments packed;
  const at::Tensor x = input().detach().view({15, 1, kHidden}).requires_grad_();
  const auto loss = [&] {
    block.layer.router().begin_step();
    const at::Tensor y = weighted_sum(block.layer.forward(x, packed.context()));
    return y + auxiliary_losses(block);
  };
  block.store.zero_gradients();
  loss().backward();
  block.store.finalize_gradients();

  const at::Tensor scores =
      at::softmax(at::matmul(x.detach().view({15, kHidden}), block.value("router.weight").t()), -1);
  double expected = 0;
  for (const auto& [first, count] : {std::pair{0, 4}, {4, 1}, {5, 10}})
    expected += balance_by_definition(scores.narrow(0, first, count), 2) * count / 15;
  const double* sums = block.layer.router().statistics().sums.const_data_ptr<double>() + 6;
  EXPECT_NEAR(sums[RoutingStatistics::seq_aux_loss], expected, 1e-13);
  EXPECT_NEAR(sums[RoutingStatistics::aux_loss], balance_by_definition(scores, 2), 1e-13);

  const Parameter* weight = block.store.find("mlp.router.weight");
  const at::Tensor dx = x.grad().clone(), dw = weight->grad().clone();
  compare_gradient(loss, x, dx, "input", {});
  compare_gradient(loss, weight->value(), dw, weight->name(), {});
}

/// Padding takes no part in the losses of packed documents.
TEST(MoeLayer, PaddedSequencesAreBalancedByTheirTokens) {
  TransformerConfig config = small_config();
  config.moe.router_load_balancing_type = {LoadBalancing::aux_loss, LoadBalancing::seq_aux_loss};
  config.moe.aux_loss_coeff = {0.5, 0.8};
  config.moe.z_loss_coeff = 0.1;
  Block block(config);
  ForwardContext context = PackedDocuments().context();
  context.lengths = {2, 1, 7};
  const RowPositions& rows = context.row_positions;
  context.row_positions.padding =
      (rows.each >= at::tensor({2, 1, 7}, at::kLong).index_select(0, rows.sequences)).unsqueeze(1);
  const at::Tensor x = input().detach().view({15, 1, kHidden});
  block.layer.forward(x, context);

  const at::Tensor logits = at::matmul(x.view({15, kHidden}), block.value("router.weight").t());
  double of_sequences = 0;
  std::vector<at::Tensor> tokens;
  for (const auto& [first, count] : {std::pair{0, 2}, {4, 1}, {5, 7}}) {
    tokens.push_back(logits.narrow(0, first, count));
    of_sequences += balance_by_definition(at::softmax(tokens.back(), -1), 2) * count / 10;
  }
  const at::Tensor all = at::cat(tokens);
  const at::Tensor statistics = block.layer.router().statistics().sums;
  EXPECT_EQ(statistics.narrow(0, 0, 6).sum().item<double>(), 2 * 10);
  const double* sums = statistics.const_data_ptr<double>() + 6;
  EXPECT_EQ(sums[RoutingStatistics::tokens], 10);
  EXPECT_EQ(sums[RoutingStatistics::dropped], 0);
  EXPECT_NEAR(sums[RoutingStatistics::seq_aux_loss], of_sequences, 1e-13);
  EXPECT_NEAR(sums[RoutingStatistics::aux_loss], balance_by_definition(at::softmax(all, -1), 2),
              1e-13);
  EXPECT_NEAR(sums[RoutingStatistics::z_loss],
              at::logsumexp(all, -1).square().mean().item<double>(), 1e-13);
}

/// Rows of padding behind the tokens of each sample change no output, gradient or statistic.
TEST(MoeLayer, PaddingChangesNothing) {
  constexpr std::int64_t kTokens = 3;
  const auto variants = training_variants();
  for (std::size_t i = 0; i < variants.size(); ++i) {
    SCOPED_TRACE("variant " + std::to_string(i));
    TransformerConfig config = small_config();
    variants[i](config);
    Block block(config);
    /// Runs the layer on samples of `length` tokens in `rows`.
    const auto run = [&](const at::Tensor& rows, std::int64_t length) {
      ForwardContext context = training_context();
      if (length < rows.size(0)) {
        context.lengths.assign(kSamples, length);
        context.row_positions.padding =
            (at::arange(rows.size(0)).unsqueeze(1) >= length).expand({rows.size(0), kSamples});
      }
      block.layer.router().begin_step();
      block.store.zero_gradients();
      const at::Tensor x = rows.clone().requires_grad_();
      const at::Tensor y = block.layer.forward(x, context).narrow(0, 0, kTokens);
      weighted_sum(y).backward();
      block.store.finalize_gradients();
      std::vector<at::Tensor> results{block.layer.router().statistics().sums, y.detach(),
                                      x.grad().narrow(0, 0, kTokens)};
      for (const Parameter* parameter : block.store.parameters())
        if (parameter->is_trained()) results.push_back(parameter->grad().clone());
      return results;
    };
    const at::Tensor rows = input().detach();
    const std::vector<at::Tensor> expected = run(rows.narrow(0, 0, kTokens), kTokens),
                                  actual = run(rows, kTokens);
    for (std::size_t k = 0; k < expected.size(); ++k)
      EXPECT_LE(difference(actual[k], expected[k]), 1e-13) << "result " << k;
    EXPECT_EQ(run(rows, 0)[0].abs().sum().item<double>(), 0) << "padding alone";
  }
}

/// An expert without a token has a gradient of zero, not none.
TEST(MoeLayer, AnExpertWithoutTokensHasAZeroGradient) {
  Block block(small_config());
  block.value("router.weight").zero_();  // all scores are equal: the first experts win
  block.store.zero_gradients();
  weighted_sum(block.layer.forward(input(), training_context())).backward();
  const at::Tensor gradient = block.store.find("mlp.experts.linear_fc1.weight")->grad();
  EXPECT_GT(gradient[0].abs().max().item<double>(), 0);
  EXPECT_GT(gradient[1].abs().max().item<double>(), 0);
  EXPECT_EQ(gradient.narrow(0, 2, 4).abs().max().item<double>(), 0);
}

/// --moe-router-num-groups alone limits nothing.
TEST(MoeLayer, GroupsWithoutALimitChangeNothing) {
  TransformerConfig config = small_config();
  const at::Tensor x = input().detach(), expected = Block(config).layer.forward(x, {});
  config.moe.router_num_groups = 3;
  EXPECT_TRUE(Block(config).layer.forward(x, {}).equal(expected));
}

/// In generation a pass begins at any position.
TEST(MoeLayer, CapacityCountsTheTokensOfThePass) {
  TransformerConfig config = small_config();
  config.moe.expert_capacity_factor = 1;
  Block block(config);
  const at::Tensor x = input().detach();
  ForwardContext later;
  later.row_positions.first = 17;
  EXPECT_TRUE(block.layer.forward(x, later).equal(block.layer.forward(x, {})));
}

/// Logits that Sinkhorn's iteration would take 10⁵ steps for.
TEST(MoeLayer, SinkhornEnds) {
  TransformerConfig config = small_config();
  config.moe.router_load_balancing_type = {LoadBalancing::sinkhorn};
  Block block(config);
  const RoutingSpan span{.batch = 1, .num_positions = 64, .tokens_of_ranks = {64}, .lengths = {64}};
  at::Tensor logits = random_input({64, 6}).detach();
  logits.select(1, 2).sub_(10);
  const at::Tensor scores = sinkhorn_scores({config.moe, block.rank, span}, logits);
  EXPECT_TRUE(at::isfinite(scores).all().item<bool>());
}

TEST(MoeLayer, DropsTheLowestProbabilities) {
  MoeConfig config;
  config.num_experts = 2;
  config.router_topk = 1;
  const Rank rank;
  const RoutingSpan span{.batch = 1, .num_positions = 5, .tokens_of_ranks = {5}, .lengths = {5}};
  const auto kept = [&](TokenDropPolicy policy,
                        const at::Tensor& probs = at::tensor({0.1, 0.9, 0.5, 0.9, 0.9})) {
    config.token_drop_policy = policy;
    config.expert_capacity_factor = 0.8;  // ⌈5 / 2 · 0.8⌉ = 2
    RoutedTokens routed{.experts = at::zeros({5, 1}, at::kInt), .probs = probs.view({5, 1})};
    drop_beyond_capacity({config, rank, span}, routed);
    EXPECT_EQ((routed.probs != 0).sum().item<int>(), 2);
    std::vector<int> tokens;
    for (int t = 0; t < 5; ++t)
      if (routed.experts[t].item<int>() >= 0) tokens.push_back(t);
    return tokens;
  };
  EXPECT_EQ(kept(TokenDropPolicy::probs), (std::vector{1, 3}));  // the last 0.9 comes too late
  EXPECT_EQ(kept(TokenDropPolicy::position), (std::vector{0, 1}));
  // NaN must reach the loss.
  EXPECT_EQ(kept(TokenDropPolicy::probs, at::tensor({0.1, 0.9, NAN, 0.5, 0.9})),
            (std::vector{1, 2}));
}

TEST(MoeLayer, CountsWhatTheRouterDid) {
  TransformerConfig config = small_config();
  config.moe.expert_capacity_factor = 0.5;
  Block block(config);
  block.layer.forward(input().detach(), training_context());
  const RoutingStatistics& statistics = block.layer.router().statistics();
  const at::Tensor load = statistics.sums.narrow(0, 0, 6);
  const double dropped = statistics.sums[6 + RoutingStatistics::dropped].item<double>();
  const std::int64_t capacity = expert_capacity(config.moe, kPositions * kSamples);
  EXPECT_EQ(capacity, 3);  // ⌈2·15 / 6 · 0.5⌉
  EXPECT_LE(load.max().item<double>(), static_cast<double>(capacity));
  EXPECT_EQ(load.sum().item<double>() + dropped, 2 * kPositions * kSamples);
  EXPECT_EQ(statistics.sums[6 + RoutingStatistics::tokens].item<double>(), kPositions * kSamples);
}

TEST(MoeLayer, TheExpertBiasMovesTowardsAnEvenLoad) {
  TransformerConfig config = small_config();
  config.moe.router_score_function = RouterScore::sigmoid;
  config.moe.router_enable_expert_bias = true;
  config.moe.router_bias_update_rate = 0.01;
  Block block(config);
  const at::Tensor bias = block.value("router.expert_bias"), before = bias.clone();
  block.layer.router().update_expert_bias(at::tensor({5., 2., 2., 2., 1., 0.}, at::kDouble));
  const at::Tensor moved = (bias - before).to(at::kDouble) / 0.01;
  EXPECT_LE(difference(moved, at::tensor({-1., 0., 0., 0., 1., 1.}, at::kDouble)), 1e-4);
}

TEST(MoeLayer, RandomRoutingIsEvenAndRepeats) {
  TransformerConfig config = small_config();
  config.moe.router_force_load_balancing = true;
  Block block(config);
  const at::Tensor x = random_input({200, kSamples, kHidden}).detach();
  const at::Tensor first = block.layer.forward(x, training_context());
  const at::Tensor load = block.layer.router().statistics().sums.narrow(0, 0, 6).clone();
  EXPECT_GT(load.min().item<double>(), 150);  // 200 each in the mean
  EXPECT_LT(load.max().item<double>(), 250);
  EXPECT_TRUE(block.layer.forward(x, training_context()).equal(first));
}

}  // namespace
}  // namespace megatron
