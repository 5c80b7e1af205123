// Element types of tensors in files, with their safetensors names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace megatron {

enum class SafetensorsDtype {
  BOOL,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64
};

std::string_view safetensors_dtype_name(SafetensorsDtype type);
/// Returns nullopt for an unknown name.
std::optional<SafetensorsDtype> parse_safetensors_dtype(std::string_view name);
/// Returns the size of an element in bytes.
std::uint64_t element_size(SafetensorsDtype type);

}  // namespace megatron
