// Converts between tensors and the bytes of files, and counts NaN and infinite values: of weights
// from a diverged run, or in a type with too small a range.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/checkpoint/safetensors.h"

namespace megatron {

/// Returns the file type of a floating-point tensor. Throws a UserError for a type that checkpoints
/// do not store.
SafetensorsDtype to_safetensors_dtype(at::ScalarType type);
/// Returns the tensor type of a weight in a file. Throws a UserError that names `place` for types
/// that weights cannot have (integers, 8 bits).
at::ScalarType to_scalar_type(SafetensorsDtype type, const std::string& place);

/// Returns the name as config.json spells it, such as "float32".
std::string dtype_name(at::ScalarType type);

/// Returns a view of the file's bytes, valid as long as the file; a copy when they are not aligned.
at::Tensor view_tensor(const SafetensorsFile& file, const StoredTensor& stored);
/// The same for the bytes of a tensor in any file.
at::Tensor view_bytes(std::span<const std::byte> bytes, at::ScalarType type, const Shape& shape);

/// Returns `tensor` contiguous on the CPU; the same tensor when it already is.
at::Tensor contiguous_cpu(const at::Tensor& tensor);
/// Returns the bytes of a contiguous CPU tensor.
std::span<const std::byte> tensor_bytes(const at::Tensor& contiguous_tensor);

/// Returns a view of the part of `tensor` at `offset` with `shape`.
at::Tensor narrow_to(at::Tensor tensor, const Shape& offset, const Shape& shape);

/// Returns the number of NaN and infinite elements. It makes one pass without copies when there are
/// none; else it copies a small part at a time.
std::int64_t count_non_finite(const at::Tensor& tensor);

/// Returns "tensor 'name': 3 of 512 values are not finite"; empty when all are finite.
std::string non_finite_error(const std::string& name, const at::Tensor& tensor);

}  // namespace megatron
