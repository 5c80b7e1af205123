// Rotary position embedding (Su et al. 2021), with linear, Llama 3 and YaRN (Peng et al. 2023)
// context extension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/config/transformer_config.h"

namespace megatron {

/// The angle per position of each channel pair.
struct RotaryFrequencies {
  at::Tensor inverse;        ///< [rotary_dim / 2] float32: radians per position
  double concentration = 1;  ///< multiplies cos and sin (YaRN's attention factor)
};

/// Returns the number of rotated channels per head: rotary_percent of kv_channels, rounded down to
/// an even number.
std::int64_t rotary_dim(const TransformerConfig& config);

/// Returns the frequencies, computed in float32 as transformers and megatron-core do.
RotaryFrequencies rotary_frequencies(const TransformerConfig& config);

struct RotaryTables {
  at::Tensor cos, sin;  ///< [s or s·b, rotary_dim / 2]
};

/// Returns cos and sin tables for int64 positions of any shape: one row per position, in order, on
/// the device of both tensors.
RotaryTables rotary_tables(const RotaryFrequencies& frequencies, const at::Tensor& positions,
                           c10::ScalarType dtype);

/// Tables of compute_type [s or s·b, rotary_dim / 2], and the direction of a rotation.
struct Rotation {
  at::Tensor cos, sin;
  bool interleaved = false;  ///< pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  bool inverse = false;      ///< the transpose: backward
};

/// Returns x [s, b, n, d] rotated, contiguous; see apply_rotary(). Not differentiable.
at::Tensor rotate(const at::Tensor& x, const Rotation& rotation);

/// Copies heads on the CPU, rotated unless `rotation` is null: each tensor is [s, b, n, d], or
/// [s, b, g, r, d] with g·r = n, in any strides with unit last in `to`.
void copy_heads(const at::Tensor& from, at::Tensor& to, const Rotation* rotation);

/// Rotates x [s, b, n, d] (any strides with unit last). Half-split pairs (i, i + r/2), or (2i, 2i +
/// 1) when interleaved. Tables of compute_type have s rows, or s·b rows when samples have positions
/// of their own.
at::Tensor apply_rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                        bool interleaved);

}  // namespace megatron
