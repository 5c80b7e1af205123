#include "megatron/checkpoint/tensor_bytes.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {
namespace {

struct TypePair {
  at::ScalarType scalar;
  SafetensorsDtype stored;
  const char* name;
};

constexpr std::array kPairs{
    TypePair{at::kFloat, SafetensorsDtype::F32, "float32"},
    TypePair{at::kDouble, SafetensorsDtype::F64, "float64"},
    TypePair{at::kBFloat16, SafetensorsDtype::BF16, "bfloat16"},
    TypePair{at::kHalf, SafetensorsDtype::F16, "float16"},
};

constexpr std::int64_t kChunk = 1 << 24;  ///< elements per isfinite() call, which makes copies

}  // namespace

SafetensorsDtype to_safetensors_dtype(at::ScalarType type) {
  for (const TypePair& pair : kPairs) {
    if (pair.scalar == type) return pair.stored;
  }
  throw UserError(std::string("checkpoints cannot store tensors of type ") + c10::toString(type));
}

at::ScalarType to_scalar_type(SafetensorsDtype type, const std::string& place) {
  for (const TypePair& pair : kPairs) {
    if (pair.stored == type) return pair.scalar;
  }
  throw UserError({place + ": dtype is not supported for weights",
                   std::string(safetensors_dtype_name(type)), "use weights in F32, BF16 or F16"});
}

std::string dtype_name(at::ScalarType type) {
  for (const TypePair& pair : kPairs) {
    if (pair.scalar == type) return pair.name;
  }
  return c10::toString(type);
}

at::Tensor view_tensor(const SafetensorsFile& file, const StoredTensor& stored) {
  const at::ScalarType type =
      to_scalar_type(stored.type, file.path().string() + ": tensor '" + stored.name + "'");
  return view_bytes(file.bytes(stored), type, stored.shape);
}

at::Tensor view_bytes(std::span<const std::byte> bytes, at::ScalarType type, const Shape& shape) {
  const auto options = at::TensorOptions().dtype(type);
  if (bytes.empty()) return at::empty(shape, options);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % c10::elementSize(type) == 0)
    return at::from_blob(const_cast<std::byte*>(bytes.data()), shape, options);
  at::Tensor copy = at::empty(shape, options);
  std::memcpy(copy.data_ptr(), bytes.data(), bytes.size());
  return copy;
}

at::Tensor contiguous_cpu(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor.detach().cpu().contiguous();
  // Copies to pinned memory run at full bus speed; ATen caches the buffer for the next tensor.
  at::Tensor staged =
      at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
  return staged.copy_(tensor.detach());
}

std::span<const std::byte> tensor_bytes(const at::Tensor& contiguous_tensor) {
  return {static_cast<const std::byte*>(contiguous_tensor.const_data_ptr()),
          static_cast<std::size_t>(contiguous_tensor.nbytes())};
}

at::Tensor narrow_to(at::Tensor tensor, const Shape& offset, const Shape& shape) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), offset[dim], shape[dim]);
  return tensor;
}

std::int64_t count_non_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const auto [least, largest] = at::aminmax(tensor);  // both are NaN when any element is NaN
  if (std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>())) return 0;
  std::int64_t count = 0;
  for (const at::Tensor& chunk : tensor.reshape({-1}).split(kChunk))
    count += chunk.numel() - at::isfinite(chunk).sum().item<std::int64_t>();
  return count;
}

std::string non_finite_error(const std::string& name, const at::Tensor& tensor) {
  const std::int64_t count = count_non_finite(tensor);
  if (count == 0) return {};
  return "tensor '" + name + "': " + std::to_string(count) + " of " +
         std::to_string(tensor.numel()) + " values are not finite";
}

}  // namespace megatron
