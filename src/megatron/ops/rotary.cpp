#include "megatron/ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/row_operations.h"

namespace megatron {
namespace {

at::Tensor base_frequencies(const TransformerConfig& config, std::int64_t dim) {
  const at::Tensor exponent = at::arange(0, dim, 2, at::kFloat) / static_cast<double>(dim);
  return 1.0 / at::pow(config.rotary_base, exponent);
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

double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

double yarn_concentration(const TransformerConfig& config) {
  if (config.yarn_attention_factor) return *config.yarn_attention_factor;
  const double scale = config.rope_scaling_factor;
  if (config.yarn_mscale_all_dim == 0)
    return yarn_mscale(scale, config.yarn_mscale == 0 ? 1 : config.yarn_mscale);
  return yarn_mscale(scale, config.yarn_mscale) / yarn_mscale(scale, config.yarn_mscale_all_dim);
}

}  // namespace

std::int64_t rotary_dim(const TransformerConfig& config) {
  return static_cast<std::int64_t>(static_cast<double>(config.kv_channels) *
                                   config.rotary_percent) /
         2 * 2;
}

RotaryFrequencies rotary_frequencies(const TransformerConfig& config) {
  const std::int64_t dim = rotary_dim(config);
  const at::Tensor inverse = base_frequencies(config, dim);
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

RotaryTables rotary_tables(const RotaryFrequencies& frequencies, const at::Tensor& positions,
                           c10::ScalarType dtype) {
  const at::Tensor angles = at::outer(positions.reshape({-1}).to(at::kFloat), frequencies.inverse);
  const auto table = [&](const at::Tensor& values) {
    return (values * frequencies.concentration).to(dtype).contiguous();
  };
  return {table(angles.cos()), table(angles.sin())};
}

at::Tensor apply_rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                        bool interleaved) {
  MEGATRON_CHECK(cos.size(0) == x.size(0) || cos.size(0) == x.size(0) * x.size(1),
                 "rotary table of ", cos.size(0), " rows for ", x.size(0), " positions");
  return differentiable({.name = "RotaryBackward"}, {x},
                        [&] {
                          return Recorded{.outputs = {rotary_rows(x, {cos, sin, interleaved, 1})},
                                          .saved = {cos, sin},
                                          .backward = [interleaved](BackwardPass& pass) -> Tensors {
                                            return {rotary_rows(
                                                pass.gradients[0],
                                                {pass.saved[0], pass.saved[1], interleaved, -1})};
                                          }};
                        })
      .front();
}

}  // namespace megatron
