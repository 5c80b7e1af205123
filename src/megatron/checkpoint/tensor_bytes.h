// Converts between tensors and the bytes of files.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>

#include "megatron/checkpoint/safetensors.h"

namespace megatron {

/// The file's type of a floating-point tensor; UserError for a type that checkpoints do not hold.
SafetensorsDtype to_safetensors_dtype(at::ScalarType type);
/// The tensor type of a weight in a file; UserError naming `place` when weights cannot be of that
/// type (integers, 8 bits).
at::ScalarType to_scalar_type(SafetensorsDtype type, const std::string& place);

/// "float32", as config.json spells it.
std::string dtype_name(at::ScalarType type);

/// A tensor over the file's bytes, valid as long as the file; a copy when they are not aligned.
at::Tensor view_tensor(const SafetensorsFile& file, const StoredTensor& stored);

/// The tensor on the CPU without gaps; the same tensor when it already is.
at::Tensor contiguous_cpu(const at::Tensor& tensor);
/// The bytes of a contiguous CPU tensor.
std::span<const std::byte> tensor_bytes(const at::Tensor& contiguous_tensor);

/// The part of `tensor` at `region`.
at::Tensor narrow_to(at::Tensor tensor, const Shape& offset, const Shape& shape);

}  // namespace megatron
