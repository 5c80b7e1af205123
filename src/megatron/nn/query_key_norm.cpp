#include "megatron/nn/query_key_norm.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

constexpr const char* kWhat = "query and key norms";

/// Returns the split of all heads over tp. Ranks share the heads of a query group when there are
/// fewer groups than ranks.
AxisSplit head_split(std::int64_t num_heads, std::int64_t head_dim) {
  return {.dim = 0, .repeats = num_heads, .blocks = {{head_dim, /*splittable=*/false}}};
}

ParameterSpec weight_spec(const LayerArguments& arguments, std::int64_t num_heads) {
  const TransformerConfig& config = arguments.config;
  if (config.qk_layernorm_scope == QkNormScope::head)
    return norm_weight_spec(config, config.kv_channels, arguments.rank, NormInput::heads);
  const std::int64_t columns = num_heads * config.kv_channels;
  ParameterSpec spec = norm_weight_spec(config, columns, arguments.rank, NormInput::heads);
  if (config.qk_layernorm_scope == QkNormScope::each_head)
    spec.sharding = {.global_shape = {num_heads, config.kv_channels},
                     .splits = {head_split(num_heads, 1)}};
  else
    spec.sharding = {.global_shape = {columns},
                     .splits = {head_split(num_heads, config.kv_channels)}};
  return spec;
}

at::Tensor widened(const at::Tensor& x) { return x.to(compute_type(x.scalar_type())); }

at::Tensor scale_of(Parameter& weight, const NormOptions& options) {
  return widened(weight.precise_value()).add(options.weight_plus_one ? 1.0 : 0.0);
}

/// Returns the constants of a norm of the last dimension of x that only normalizes.
NormParams without_weights(const at::Tensor& x, const NormOptions& options) {
  const at::Tensor ones = at::ones({x.size(-1)}, x.options());
  const bool centred = options.kind == Normalization::LayerNorm;
  return {.weight = ones,
          .bias = centred ? at::zeros_like(ones) : at::Tensor(),
          .epsilon = options.epsilon};
}

}  // namespace

QueryKeyNorm::QueryKeyNorm(Module* parent, std::string_view name, const LayerArguments& arguments,
                           std::int64_t num_heads)
    : Module(parent, name),
      tp_(arguments.rank.tp),
      scope_(arguments.config.qk_layernorm_scope),
      num_columns_(num_heads * arguments.config.kv_channels),
      copies_(static_cast<double>(head_split(num_heads, 1).num_sharers(tp_))),
      weight_(declare("weight", weight_spec(arguments, num_heads), tp_)),
      bias_(arguments.config.has_norm_bias() && scope_ != QkNormScope::each_head
                ? &declare("bias",
                           norm_bias_spec(arguments.config.kv_channels, arguments.rank,
                                          NormInput::heads),
                           tp_)
                : nullptr),
      options_(norm_options(arguments.config)) {
  MEGATRON_CHECK(scope_ == QkNormScope::head || bias_ == nullptr,
                 "the norm over all heads must be an RMSNorm");
}

at::Tensor QueryKeyNorm::forward(const at::Tensor& x_sbnd) const {
  if (scope_ == QkNormScope::head) return norm(x_sbnd, weight_, bias_, options_);
  if (scope_ == QkNormScope::each_head) return by_own_weights(x_sbnd);
  const at::Tensor rows = x_sbnd.flatten(2);
  return (tp_.size == 1 ? norm(rows, weight_, nullptr, options_) : over_sharded_heads(rows))
      .view_as(x_sbnd);
}

/// Computes y = n·w, where n is the norm of each head without weights and w is [heads, head size].
/// Backward computes n again. It is dw = Σ dy·n, and the backward of n from dy·w.
at::Tensor QueryKeyNorm::by_own_weights(const at::Tensor& x_sbnd) const {
  const auto backward = [options = options_, weight = &weight_](BackwardPass& pass) -> Tensors {
    const at::Tensor x = widened(pass.saved[0]).contiguous(), dy = widened(pass.gradients[0]);
    const NormParams plain = without_weights(x, options);
    const NormRows rows = norm_rows(x, nullptr, plain, x.scalar_type());
    weight->contribute(dy.mul(rows.y).flatten(0, 1).sum(0));
    const at::Tensor dn = dy.mul(scale_of(*weight, options)).contiguous();
    return {norm_rows_backward(dn, /*residual_grad=*/{}, rows, nullptr, plain)
                .dsum.to(pass.saved[0].scalar_type())};
  };
  Recording recording({.name = "QueryKeyNormBackward", .trains_parameters = weight_.is_trained()},
                      {x_sbnd});
  const at::Tensor x = widened(x_sbnd).contiguous();
  const at::Tensor normalized =
      norm_rows(x, nullptr, without_weights(x, options_), x.scalar_type()).y;
  return recording.finish(normalized.mul(scale_of(weight_, options_)).to(x_sbnd.scalar_type()),
                          {x_sbnd}, backward);
}

/// Computes y = x·rstd·w with rstd = (Σ x²/n + ε)^−½, where the sum is over the ranks of tp. With
/// g = dy·w, backward is dx = rstd·g − x·rstd³·Σ(g·x)/n.
at::Tensor QueryKeyNorm::over_sharded_heads(const at::Tensor& x) const {
  const double count = static_cast<double>(num_columns_) * copies_;
  const auto mean_over_all = [axis = tp_, count](const at::Tensor& products) {
    const at::Tensor sum = products.sum(-1, /*keepdim=*/true);
    all_reduce_(axis, sum, kWhat);
    return sum.div_(count);
  };
  const auto backward = [mean_over_all, options = options_,
                         weight = &weight_](BackwardPass& pass) -> Tensors {
    const at::Tensor rstd = pass.saved[1], dy = widened(pass.gradients[0]);
    const at::Tensor normalized = widened(pass.saved[0]).mul(rstd),
                     g = dy.mul(scale_of(*weight, options));
    weight->contribute(dy.mul(normalized).flatten(0, -2).sum(0));
    const at::Tensor dx = g.sub(normalized.mul(mean_over_all(g.mul(normalized)))).mul_(rstd);
    return {dx.to(pass.saved[0].scalar_type())};
  };
  Recording recording({.name = "QueryKeyNormBackward", .trains_parameters = weight_.is_trained()},
                      {x});
  const at::Tensor wide = widened(x);
  const at::Tensor rstd = mean_over_all(wide.square()).add_(options_.epsilon).rsqrt_();
  return recording.finish(wide.mul(rstd).mul_(scale_of(weight_, options_)).to(x.scalar_type()),
                          {x, rstd}, backward);
}

}  // namespace megatron
