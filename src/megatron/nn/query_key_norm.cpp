#include "megatron/nn/query_key_norm.h"

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
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
  spec.sharding = {.global_shape = {columns},
                   .splits = {head_split(num_heads, config.kv_channels)}};
  return spec;
}

at::Tensor widened(const at::Tensor& x) { return x.to(compute_type(x.scalar_type())); }

}  // namespace

QueryKeyNorm::QueryKeyNorm(Module* parent, std::string_view name, const LayerArguments& arguments,
                           std::int64_t num_heads)
    : Module(parent, name),
      tp_(arguments.rank.tp),
      scope_(arguments.config.qk_layernorm_scope),
      num_columns_(num_heads * arguments.config.kv_channels),
      copies_(static_cast<double>(head_split(num_heads, 1).num_sharers(tp_))),
      weight_(declare("weight", weight_spec(arguments, num_heads), tp_)),
      bias_(arguments.config.normalization == Normalization::LayerNorm
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
  const at::Tensor rows = x_sbnd.flatten(2);
  return (tp_.size == 1 ? norm(rows, weight_, nullptr, options_) : over_sharded_heads(rows))
      .view_as(x_sbnd);
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
  const auto scale = [weight = &weight_, offset = options_.weight_plus_one ? 1.0 : 0.0] {
    return widened(weight->precise_value()).add(offset);
  };
  const auto backward = [mean_over_all, scale, weight = &weight_](BackwardPass& pass) -> Tensors {
    const at::Tensor rstd = pass.saved[1], dy = widened(pass.gradients[0]);
    const at::Tensor normalized = widened(pass.saved[0]).mul(rstd), g = dy.mul(scale());
    weight->contribute(dy.mul(normalized).flatten(0, -2).sum(0));
    const at::Tensor dx = g.sub(normalized.mul(mean_over_all(g.mul(normalized)))).mul_(rstd);
    return {dx.to(pass.saved[0].scalar_type())};
  };
  Recording recording({.name = "QueryKeyNormBackward", .trains_parameters = weight_.is_trained()},
                      {x});
  const at::Tensor wide = widened(x);
  const at::Tensor rstd = mean_over_all(wide.square()).add_(options_.epsilon).rsqrt_();
  return recording.finish(wide.mul(rstd).mul_(scale()).to(x.scalar_type()), {x, rstd}, backward);
}

}  // namespace megatron
