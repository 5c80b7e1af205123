// Rotary position embedding (Su et al. 2021), with linear, Llama 3 and YaRN (Peng et al. 2023)
// context extension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace megatron {

struct TransformerConfig;

/// The angle per position of each channel pair.
struct RotaryFrequencies {
  at::Tensor inverse;        ///< [rotary_dim / 2] float32: radians per position
  double concentration = 1;  ///< multiplies cos and sin (YaRN's attention factor)
};

/// Returns the number of rotated channels per head, an even number.
std::int64_t rotary_dim(const TransformerConfig& config);

/// Returns YaRN's 0.1·mscale·ln(factor) + 1, or 1 unless the factor is above 1.
double yarn_mscale(double factor, double mscale);

/// Returns the frequencies, computed in float32 as transformers and megatron-core do. Those of
/// local layers have rotary_base_local and no scaling.
RotaryFrequencies rotary_frequencies(const TransformerConfig& config);
RotaryFrequencies local_rotary_frequencies(const TransformerConfig& config);

struct RotaryTables {
  at::Tensor cos, sin;  ///< [s or s·b, rotary_dim / 2]
};

/// Returns cos and sin tables for int64 positions of any shape: one row per position, in order, on
/// the device of both tensors.
RotaryTables rotary_tables(const RotaryFrequencies& frequencies, const at::Tensor& positions,
                           c10::ScalarType dtype);

/// Rotary tables [s or s·b, rotary_dim / 2] in compute_type(), and the direction of the rotation.
struct Rotation {
  at::Tensor cos, sin;
  bool interleaved = false;  ///< rotates pairs (2i, 2i + 1), otherwise (i, i + rotary_dim / 2)
  bool inverse = false;      ///< applies the transposed rotation, for backward
  static auto members(auto& r) { return std::tie(r.cos, r.sin, r.interleaved, r.inverse); }
};

/// Returns x [s, b, n, d] rotated, as a contiguous tensor. Not differentiable; see apply_rotary().
at::Tensor rotate(const at::Tensor& x, const Rotation& rotation);

/// Copies heads on the CPU and rotates them unless `rotation` is null. Each tensor is [s, b, n, d]
/// or [s, b, g, r, d] with g·r = n. Strides are arbitrary, but the last stride of `to` is 1.
void copy_heads(const at::Tensor& from, at::Tensor& to, const Rotation* rotation);

/// Rotates x [s, b, n, d], which may have any strides with a unit last one. The rotated pairs are
/// (i, i + r/2), or (2i, 2i + 1) when `interleaved`. The tables are in compute_type() and have s
/// rows, or s·b rows when each sample has its own positions.
at::Tensor apply_rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                        bool interleaved);

}  // namespace megatron
