#include "megatron/nn/relative_positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/embedding.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {

RelativePositions::RelativePositions(Module* parent, std::string_view name,
                                     const TransformerConfig& config, const Axis& tp,
                                     bool is_bidirectional, const StageHolders& holders)
    : Module(parent, name),
      num_buckets_(config.relative_attention_num_buckets),
      max_distance_(config.relative_attention_max_distance),
      is_bidirectional_(is_bidirectional),
      table_(this, "relative_attention_bias",
             {.sharding = Sharding::split({num_buckets_, config.num_attention_heads}, 1),
              .init = Init::normal(config.init_method_std),
              .tags = {.precise = true},
              .holders = holders},
             tp) {}

at::Tensor RelativePositions::forward(std::int64_t num_positions) const {
  const at::Tensor ids =
      relative_buckets(num_positions, num_buckets_, max_distance_, is_bidirectional_)
          .to(table_.parameter.value().device());
  const at::Tensor bias = embedding_lookup(ids, table_.parameter);
  return bias.to(compute_type(bias.scalar_type())).t();
}

at::Tensor relative_buckets(std::int64_t num_positions, std::int64_t num_buckets,
                            std::int64_t max_distance, bool is_bidirectional) {
  const at::Tensor distance = at::arange(1 - num_positions, num_positions, at::kLong);
  const std::int64_t each = is_bidirectional ? num_buckets / 2 : num_buckets, exact = each / 2;
  const at::Tensor steps = is_bidirectional ? distance.abs() : distance.neg().clamp_min(0);
  // In float32, in which the peers round to the bucket.
  const at::Tensor share = (steps.clamp_min(1).to(at::kFloat) / exact).log() /
                           std::log(static_cast<double>(max_distance) / static_cast<double>(exact)),
                   far = (exact + (share * (each - exact)).to(at::kLong)).clamp_max(each - 1),
                   is_near = steps.lt(exact).to(at::kLong);
  const at::Tensor bucket = steps * is_near + far * (1 - is_near);
  return is_bidirectional ? bucket + distance.gt(0).to(at::kLong) * each : bucket;
}

}  // namespace megatron
