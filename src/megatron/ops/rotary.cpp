#include "megatron/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/row_kernels.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/cuda_row_operations.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

at::Tensor base_frequencies(double base, std::int64_t dim) {
  const at::Tensor exponent = at::arange(0, dim, 2, at::kFloat) / static_cast<double>(dim);
  return 1.0 / at::pow(base, exponent);
}

/// Llama 3.1 scaling: divides the frequencies of long wavelengths by the factor, keeps short
/// wavelengths, and blends the band between them.
at::Tensor llama3_frequencies(const TransformerConfig& config, const at::Tensor& inverse) {
  const double original = static_cast<double>(config.rope_original_max_position_embeddings);
  const double low_wavelength = original / config.rope_low_freq_factor,
               high_wavelength = original / config.rope_high_freq_factor;
  const at::Tensor wavelength = 2 * std::numbers::pi / inverse;
  const at::Tensor scaled =
      at::where(wavelength > low_wavelength, inverse / config.rope_scaling_factor, inverse);
  const at::Tensor smooth = (original / wavelength - config.rope_low_freq_factor) /
                            (config.rope_high_freq_factor - config.rope_low_freq_factor);
  const at::Tensor blended = (1 - smooth) * scaled / config.rope_scaling_factor + smooth * scaled;
  const at::Tensor medium =
      (wavelength >= high_wavelength).logical_and(wavelength <= low_wavelength);
  return at::where(medium, blended, scaled);
}

/// YaRN: returns the channel whose wavelength makes `rotations` turns over the original context.
double correction_dim(const TransformerConfig& config, std::int64_t dim, double rotations) {
  const double original = static_cast<double>(config.rope_original_max_position_embeddings);
  return dim * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.rotary_base));
}

at::Tensor yarn_frequencies(const TransformerConfig& config, std::int64_t dim,
                            const at::Tensor& inverse) {
  double low = correction_dim(config, dim, config.yarn_beta_fast),
         high = correction_dim(config, dim, config.yarn_beta_slow);
  if (config.yarn_correction_range_round_to_int) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor keep = 1 - ramp;
  return inverse / config.rope_scaling_factor * (1 - keep) + inverse * keep;
}

double yarn_concentration(const TransformerConfig& config) {
  if (config.yarn_attention_factor) return *config.yarn_attention_factor;
  const double scale = config.rope_scaling_factor;
  if (config.yarn_mscale_all_dim == 0)
    return yarn_mscale(scale, config.yarn_mscale == 0 ? 1 : config.yarn_mscale);
  return yarn_mscale(scale, config.yarn_mscale) / yarn_mscale(scale, config.yarn_mscale_all_dim);
}

/// Returns the layout of [s, b, n, d] with unit last stride and evenly spaced heads, or of [s, b,
/// g, r, d].
kernels::HeadLayout layout_of(const at::Tensor& heads) {
  const bool grouped = heads.dim() == 5;
  return {.position = heads.stride(0),
          .sample = heads.stride(1),
          .group = heads.stride(2),
          .head = grouped ? heads.stride(3) : 0,
          .group_heads = grouped ? heads.size(3) : 1};
}

at::Tensor rotate_on_cpu(const at::Tensor& x, const Rotation& rotation) {
  at::Tensor out = at::empty(x.sizes(), x.options());
  copy_heads(x, out, &rotation);
  return out;
}

/// Rotates with the plugin's kernel, which needs evenly spaced tokens.
at::Tensor rotate_on_cuda(const at::Tensor& x, const Rotation& rotation) {
  const auto& [cos, sin, interleaved, inverse] = rotation;
  const std::int64_t s = x.size(0), b = x.size(1), n = x.size(2), d = x.size(3);
  // The stride of a dimension of size 1 is arbitrary, even in a tensor that reports itself
  // contiguous.
  const bool even = x.stride(3) == 1 && (b == 1 || s == 1 || x.stride(0) == b * x.stride(1));
  const at::Tensor from = even ? x : x.contiguous();
  at::Tensor out = at::empty({s, b, n, d}, x.options());
  cuda_row_operations().rotary({.x = from.const_data_ptr(),
                                .cos = cos.const_data_ptr(),
                                .sin = sin.const_data_ptr(),
                                .out = out.mutable_data_ptr(),
                                .type = kernel_type(x.scalar_type()),
                                .tokens = s * b,
                                .heads = n,
                                .head_dim = d,
                                .rotary_dim = 2 * cos.size(1),
                                .token_stride = !even    ? n * d
                                                : b == 1 ? x.stride(0)
                                                         : x.stride(1),
                                .head_stride = even ? x.stride(2) : d,
                                .tokens_per_row = cos.size(0) == s ? b : 1,
                                .interleaved = interleaved,
                                .sign = inverse ? -1.0 : 1.0});
  return out;
}

at::Tensor rotate_by_aten(const at::Tensor& x, const Rotation& rotation) {
  const at::Tensor &cos = rotation.cos, &sin = rotation.sin;
  const bool interleaved = rotation.interleaved;
  const std::int64_t half = cos.size(1), rotated = 2 * half;
  const auto table = [&](const at::Tensor& values) {
    return values.view({x.size(0), values.size(0) / x.size(0), 1, half});
  };
  const at::Tensor wide = x.narrow(-1, 0, rotated).to(cos.scalar_type());
  const at::Tensor pairs =
      interleaved ? wide.unflatten(-1, {half, 2}) : wide.unflatten(-1, {2, half}).transpose(-1, -2);
  const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1), c = table(cos),
                   s = rotation.inverse ? table(sin).neg() : table(sin);
  const at::Tensor turned = at::stack({a * c - b * s, b * c + a * s}, -1);
  const at::Tensor first =
      (interleaved ? turned : turned.transpose(-1, -2)).flatten(-2).to(x.scalar_type());
  return at::cat({first, x.narrow(-1, rotated, x.size(-1) - rotated)}, -1);
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<rotate_on_cpu>(library, "rotary");
  register_kernel<rotate_on_cuda>(library, "rotary", c10::DispatchKey::CUDA);
  register_kernel<rotate_by_aten>(library, "rotary", kAnyDevice);
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

std::int64_t rotary_dim(const TransformerConfig& config) {
  return config.rotated_channels() / 2 * 2;
}

RotaryFrequencies rotary_frequencies(const TransformerConfig& config) {
  const std::int64_t dim = rotary_dim(config);
  const at::Tensor inverse = base_frequencies(config.rotary_base, dim);
  switch (config.rope_scaling_type) {
    case RopeScaling::none:
      return {inverse};
    case RopeScaling::linear:
      return {inverse / config.rope_scaling_factor};
    case RopeScaling::llama3:
      return {llama3_frequencies(config, inverse)};
    case RopeScaling::yarn:
      return {yarn_frequencies(config, dim, inverse), yarn_concentration(config)};
  }
  throw InternalError("a rope scaling without a formula");
}

RotaryFrequencies local_rotary_frequencies(const TransformerConfig& config) {
  return {base_frequencies(config.rotary_base_local.value(), rotary_dim(config))};
}

RotaryTables rotary_tables(const RotaryFrequencies& frequencies, const at::Tensor& positions,
                           c10::ScalarType dtype) {
  const at::Tensor angles = at::outer(positions.reshape({-1}).to(at::kFloat), frequencies.inverse);
  const auto table = [&](const at::Tensor& values) {
    return (values * frequencies.concentration).to(dtype).contiguous();
  };
  return {table(angles.cos()), table(angles.sin())};
}

void copy_heads(const at::Tensor& from, at::Tensor& to, const Rotation* rotation) {
  const at::Tensor source = from.stride(-1) == 1 ? from : from.contiguous();
  MEGATRON_CHECK(source.numel() == to.numel() && to.stride(-1) == 1 &&
                     source.scalar_type() == to.scalar_type(),
                 "heads of ", from.sizes(), " ", from.scalar_type(), " into ", to.sizes(), " ",
                 to.scalar_type());
  if (to.numel() == 0) return;
  const std::int64_t b = to.size(1), tokens = to.size(0) * b, d = to.size(-1),
                     n = to.numel() / (tokens * d);
  kernels::HeadsArguments arguments{.from = source.const_data_ptr(),
                                    .to = to.mutable_data_ptr(),
                                    .from_layout = layout_of(source),
                                    .to_layout = layout_of(to),
                                    .type = kernel_type(to.scalar_type()),
                                    .tokens = tokens,
                                    .samples = b,
                                    .heads = n,
                                    .head_dim = d};
  if (rotation != nullptr) {
    arguments.cos = rotation->cos.const_data_ptr();
    arguments.sin = rotation->sin.const_data_ptr();
    arguments.rotary_dim = 2 * rotation->cos.size(1);
    arguments.tokens_per_row = rotation->cos.size(0) == to.size(0) ? b : 1;
    arguments.interleaved = rotation->interleaved;
    arguments.sign = rotation->inverse ? -1 : 1;
  }
  parallel_kernel(kernels::row_kernels().heads, arguments, tokens, n * d);
}

at::Tensor rotate(const at::Tensor& x, const Rotation& rotation) {
  static const Operator<rotate_on_cpu> op("megatron::rotary");
  return op(x, rotation);
}

at::Tensor apply_rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                        bool interleaved) {
  MEGATRON_CHECK(cos.size(0) == x.size(0) || cos.size(0) == x.size(0) * x.size(1),
                 "rotary table of ", cos.size(0), " rows for ", x.size(0), " positions");
  Recording recording({.name = "RotaryBackward"}, {x});
  return recording.finish(
      rotate(x, {cos, sin, interleaved}), {cos, sin}, [interleaved](BackwardPass& pass) -> Tensors {
        return {rotate(pass.gradients[0],
                       {pass.saved[0], pass.saved[1], interleaved, /*inverse=*/true})};
      });
}

}  // namespace megatron
