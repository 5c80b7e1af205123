// Mamba-2 and the gated delta net against their recurrences, row by row in float64, and against
// central differences; packed sequences and documents, and passes of generation.
#include "megatron/nn/ssm/recurrent_mixer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/ssm/gated_delta_net.h"
#include "megatron/nn/ssm/mamba_mixer.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr std::int64_t kLength = 7, kSamples = 2, kHidden = 6;

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = kHidden;
  config.normalization = Normalization::RMSNorm;
  config.norm_epsilon = 1e-3;
  config.mamba = {.state_dim = 5,
                  .head_dim = 3,
                  .num_groups = 2,
                  .num_heads = 4,
                  .conv_kernel_dim = 3,
                  .norm_epsilon = 1e-3};
  config.linear_attention = {.conv_kernel_dim = 3,
                             .key_head_dim = 5,
                             .value_head_dim = 3,
                             .num_key_heads = 2,
                             .num_value_heads = 4};
  return config;
}

struct Block {
  explicit Block(MixerKind kind, const TransformerConfig& model = small_config())
      : config(model),
        mixer(kind == MixerKind::mamba
                  ? std::unique_ptr<RecurrentMixer>(std::make_unique<MambaMixer>(
                        &root, "mixer", LayerArguments{.config = config, .rank = rank}))
                  : std::make_unique<GatedDeltaNet>(
                        &root, "mixer", LayerArguments{.config = config, .rank = rank})),
        sizes(config.recurrent_sizes(kind)),
        store(declared_parameters(root), {.dtype = at::kDouble}) {
    store.initialize(1);
    int phase = 0;
    for (Parameter* parameter : declared_parameters(root)) {
      at::Tensor value = parameter->value();
      value.copy_(random_input(value.sizes(), 0.6, phase++).detach());
      weights[parameter->name().substr(6)] = value;  // without "mixer."
    }
  }
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context = {}) {
    return mixer->forward(x, context);
  }

  Rank rank;
  TransformerConfig config;
  BareModule root;
  std::unique_ptr<RecurrentMixer> mixer;
  RecurrentSizes sizes;
  ParamStore store;
  std::map<std::string, at::Tensor> weights;
};

/// Returns silu(Σ_i weight[:, i]·x_{t − (w − 1) + i} + bias), with zeros in front of the sequence.
at::Tensor convolved(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const std::int64_t taps = weight.size(2);
  at::Tensor sum = bias.defined() ? at::zeros_like(x) + bias : at::zeros_like(x);
  const at::Tensor padded = at::cat({at::zeros({taps - 1, x.size(1), x.size(2)}, at::kDouble), x});
  for (std::int64_t i = 0; i < taps; ++i)
    sum = sum + padded.narrow(0, i, x.size(0)) * weight.select(2, i).squeeze(1);
  return at::silu(sum);
}

at::Tensor rms(const at::Tensor& x) { return x * (x.square().mean(-1, true) + 1e-3).rsqrt(); }

/// Returns S_tᵀ·q_t for each row t, where S_t = a_t·S_{t−1} + k_t·β_t·(v_t − [delta] (a_t·S_{t−1})ᵀ
/// k_t)ᵀ. q, k [s, b, heads, n], v [s, b, heads, p], a and β [s, b, heads].
at::Tensor recurrence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& a, const at::Tensor& beta, bool is_delta) {
  at::Tensor state = at::zeros({q.size(1), q.size(2), q.size(3), v.size(3)}, at::kDouble);
  std::vector<at::Tensor> rows;
  for (std::int64_t t = 0; t < q.size(0); ++t) {
    state = state * a[t].unsqueeze(-1).unsqueeze(-1);
    at::Tensor added = v[t];
    if (is_delta) added = added - (state * k[t].unsqueeze(-1)).sum(2);
    state = state + k[t].unsqueeze(-1) * (beta[t].unsqueeze(-1) * added).unsqueeze(2);
    rows.push_back((state * q[t].unsqueeze(-1)).sum(2));
  }
  return at::stack(rows);
}

at::Tensor textbook_mamba(const Block& block, const at::Tensor& x) {
  const auto& w = block.weights;
  const RecurrentSizes& z = block.sizes;
  const at::Tensor rows = at::matmul(x, w.at("in_proj.weight").t());
  const auto parts = rows.split_with_sizes({z.value_channels(), z.conv_channels(), z.heads}, -1);
  const auto xbc =
      convolved(parts[1], w.at("conv1d.weight"), w.at("conv1d.bias"))
          .split_with_sizes({z.value_channels(), z.key_channels(), z.key_channels()}, -1);
  const auto of_heads = [&](const at::Tensor& groups) {
    return groups.unflatten(-1, {z.groups, z.key_dim})
        .repeat_interleave(z.heads / z.groups, std::int64_t{2});
  };
  const at::Tensor value = xbc[0].unflatten(-1, {z.heads, z.value_dim}),
                   step = at::softplus(parts[2] + w.at("dt_bias")),
                   decay = (step * -w.at("A_log").exp()).exp();
  const at::Tensor out = recurrence(of_heads(xbc[2]), of_heads(xbc[1]), value, decay, step,
                                    /*is_delta=*/false) +
                         value * w.at("D").unsqueeze(-1);
  const at::Tensor gated = out.flatten(2) * at::silu(parts[0]);
  const at::Tensor normed = rms(gated.unflatten(-1, {z.groups, -1})).flatten(2);
  return at::matmul(normed * w.at("norm.weight"), w.at("out_proj.weight").t());
}

at::Tensor textbook_delta_net(const Block& block, const at::Tensor& x) {
  const auto& w = block.weights;
  const RecurrentSizes& z = block.sizes;
  const at::Tensor rows = at::matmul(x, w.at("in_proj.weight").t());
  const auto parts =
      rows.split_with_sizes({z.conv_channels(), z.value_channels(), z.heads, z.heads}, -1);
  const auto qkv =
      convolved(parts[0], w.at("conv1d.weight"), {})
          .split_with_sizes({z.key_channels(), z.key_channels(), z.value_channels()}, -1);
  const auto of_heads = [&](const at::Tensor& groups) {
    const at::Tensor split = groups.unflatten(-1, {z.groups, z.key_dim});
    return (split * (split.square().sum(-1, true) + 1e-6).rsqrt())
        .repeat_interleave(z.heads / z.groups, std::int64_t{2});
  };
  const at::Tensor decay = (at::softplus(parts[3] + w.at("dt_bias")) * -w.at("A_log").exp()).exp();
  const at::Tensor out =
      recurrence(of_heads(qkv[0]) / std::sqrt(static_cast<double>(z.key_dim)), of_heads(qkv[1]),
                 qkv[2].unflatten(-1, {z.heads, z.value_dim}), decay,
                 at::sigmoid(parts[2]) * (block.config.linear_attention.allow_neg_eigval ? 2 : 1),
                 /*is_delta=*/true);
  const at::Tensor gated =
      rms(out) * w.at("out_norm.weight") * at::silu(parts[1].unflatten(-1, {z.heads, z.value_dim}));
  return at::matmul(gated.flatten(2), w.at("out_proj.weight").t());
}

constexpr MixerKind kKinds[]{MixerKind::mamba, MixerKind::gated_delta_net};

TEST(RecurrentMixer, EqualsTheRecurrence) {
  for (const MixerKind kind : kKinds) {
    SCOPED_TRACE(words_of({.mixer = kind}));
    Block block(kind);
    const at::Tensor x = random_input({kLength, kSamples, kHidden});
    const at::Tensor expected =
        kind == MixerKind::mamba ? textbook_mamba(block, x) : textbook_delta_net(block, x);
    EXPECT_LT(difference(block.forward(x), expected), 1e-12);
    check_gradients([&] { return weighted_sum(block.forward(x)); }, {x}, &block.store);
  }
}

TEST(RecurrentMixer, ADeltaNetMayHaveNegativeEigenvaluesAndAnEpsilonOfItsOwn) {
  TransformerConfig config = small_config();
  config.norm_epsilon = 0.5;
  config.linear_attention.norm_epsilon = 1e-3;
  config.linear_attention.allow_neg_eigval = true;
  Block block(MixerKind::gated_delta_net, config);
  const at::Tensor x = random_input({kLength, kSamples, kHidden});
  EXPECT_LT(difference(block.forward(x), textbook_delta_net(block, x)), 1e-12);
  check_gradients([&] { return weighted_sum(block.forward(x)); }, {x}, &block.store);
}

TEST(RecurrentMixer, HasMegatronsNames) {
  const auto names_of = [](MixerKind kind) {
    std::vector<std::string> names;
    for (const auto& [name, value] : Block(kind).weights) names.push_back(name);
    return names;
  };
  EXPECT_EQ(names_of(MixerKind::mamba),
            (std::vector<std::string>{"A_log", "D", "conv1d.bias", "conv1d.weight", "dt_bias",
                                      "in_proj.layer_norm_weight", "in_proj.weight", "norm.weight",
                                      "out_proj.weight"}));
  EXPECT_EQ(
      names_of(MixerKind::gated_delta_net),
      (std::vector<std::string>{"A_log", "conv1d.weight", "dt_bias", "in_proj.layer_norm_weight",
                                "in_proj.weight", "out_norm.weight", "out_proj.weight"}));
}

/// Neither packed sequences nor documents see one another.
TEST(RecurrentMixer, EachSequenceBeginsWithoutState) {
  for (const MixerKind kind : kKinds) {
    Block block(kind);
    const at::NoGradGuard no_grad;
    const at::Tensor x = random_input({kLength, 1, kHidden}).detach();
    const at::Tensor expected =
        at::cat({block.forward(x.narrow(0, 0, 3)), block.forward(x.narrow(0, 3, 4))});
    ForwardContext packed;
    const Axis alone{"cp"};
    packed.cp = &alone;
    packed.placement =
        std::make_shared<const SequencePlacement>(whole_placement(kLength, {0, 3, kLength}));
    EXPECT_LT(difference(block.forward(x, packed), expected), 1e-13);
    ForwardContext documents;
    documents.documents = document_pieces(at::tensor({4, 4, 4, 5, 5, 5, 5}, at::kInt).unsqueeze(0));
    EXPECT_LT(difference(block.forward(x, documents), expected), 1e-13);
    // The second sequence has two documents.
    packed.documents = document_pieces(at::tensor({4, 4, 4, 4, 4, 5, 5}, at::kInt).unsqueeze(0));
    const at::Tensor three =
        at::cat({block.forward(x.narrow(0, 0, 3)), block.forward(x.narrow(0, 3, 2)),
                 block.forward(x.narrow(0, 5, 2))});
    EXPECT_LT(difference(block.forward(x, packed), three), 1e-13);
  }
}

TEST(RecurrentMixer, PassesOfGenerationContinueTheStates) {
  for (const MixerKind kind : kKinds) {
    Block block(kind);
    const at::NoGradGuard no_grad;
    const at::Tensor x = random_input({kLength, 1, kHidden}).detach();
    const at::Tensor whole = block.forward(x);
    SequenceCache cache;
    const Caches caches{&cache};
    const Axis alone{"cp"};
    ForwardContext context;
    context.cp = &alone;
    context.caches = &caches;
    std::vector<at::Tensor> rows;
    for (const std::int64_t count : {4, 1, 2}) {
      context.placement = std::make_shared<const SequencePlacement>(whole_placement(count, {}));
      rows.push_back(block.forward(x.narrow(0, cache.length, count), context));
      cache.length += count;
    }
    EXPECT_LT(difference(at::cat(rows), whole), 1e-13);
  }
}

/// Megatron-LM's: softplus(dt_bias) in [0.001, 0.1], exp(A_log) in [1, 16].
TEST(RecurrentMixer, HasTheInitialValuesOfMegatron) {
  TransformerConfig config = small_config();
  config.mamba.num_heads = 512;
  const Rank rank;
  BareModule root;
  const MambaMixer mixer(&root, "mixer", {.config = config, .rank = rank});
  ParamStore store(declared_parameters(root), {.dtype = at::kDouble});
  store.initialize(1);
  const auto value = [&](const std::string& name) {
    for (const Parameter* parameter : store.parameters())
      if (parameter->name() == "mixer." + name) return parameter->value();
    return at::Tensor();
  };
  const at::Tensor step = at::softplus(value("dt_bias")), decay = value("A_log").exp(),
                   taps = value("conv1d.weight");
  const auto expect_range = [](const at::Tensor& x, double least, double most, double mean) {
    EXPECT_GE(x.min().item<double>(), least);
    EXPECT_LE(x.max().item<double>(), most);
    EXPECT_NEAR(x.mean().item<double>(), mean, 0.1 * (most - least));
  };
  expect_range(step.log(), std::log(0.001), std::log(0.1), std::log(0.01));
  expect_range(decay, 1, 16, 8.5);
  expect_range(taps, -1 / std::sqrt(3), 1 / std::sqrt(3), 0);
  expect_range(value("D"), 1, 1, 1);
}

}  // namespace
}  // namespace megatron
