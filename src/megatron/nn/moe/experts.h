// The experts of a mixture-of-experts layer that a rank holds: MLPs that are computed together,
// with one grouped GEMM for all of them, and the one that all tokens take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/nn/mlp.h"
#include "megatron/nn/moe/expert_order.h"
#include "megatron/nn/moe/token_dispatcher.h"
#include "megatron/parallel/rank.h"

namespace megatron {

struct TransformerConfig;

/// The experts of this rank: E / ep of them, each with 1 / etp of its columns. Weights are stacked:
/// linear_fc1.weight is [E, 2·f or f, h], where the rows are gate | up, and linear_fc2.weight
/// [E, h, f].
class Experts : public Module {
 public:
  /// `width` is the size of the rows that the experts take and return: the hidden or latent size.
  Experts(Module* parent, const LayerArguments& arguments, std::int64_t width);

  /// Returns p·fc2(f(fc1(x))) for the rows x [rows, width] of the tokens. Their probabilities are
  /// float32 (float64) or undefined: then p is 1. The result is this rank's part of a sum over etp.
  at::Tensor forward(const DispatchedTokens& tokens, const ForwardContext& context) const;

  /// Says which experts the rows of the weights are. The caller moves the values.
  void set_order(const ExpertOrder& order);

 private:
  /// A stacked weight and its biases, or null.
  class Linear : public Module {
   public:
    Linear(Module* parent, const char* name) : Module(parent, name) {}
    Parameter& add(const char* leaf, ParameterSpec spec, const Rank& rank) {
      return declare(leaf, std::move(spec), std::vector<Axis>{rank.ep, rank.etp});
    }
  };

  const TransformerConfig& config_;
  const Rank& rank_;
  Linear linear_fc1_, linear_fc2_;
  Parameter &fc1_weight_, &fc2_weight_;
  Parameter *fc1_bias_ = nullptr, *fc2_bias_ = nullptr;
};

/// Experts that all tokens take (DeepSeekMoE, Dai et al. 2024), sharded over tp like an MLP, with
/// an optional gate σ(x·w).
class SharedExperts : public Mlp {
 public:
  SharedExperts(Module* parent, const LayerArguments& arguments);
  at::Tensor forward(const at::Tensor& input_sbh, const ForwardContext& context) override;

 private:
  Parameter* gate_weight_ = nullptr;  ///< [1, h]
};

}  // namespace megatron
