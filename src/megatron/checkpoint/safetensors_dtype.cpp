#include "megatron/checkpoint/safetensors_dtype.h"

#include <algorithm>
#include <array>

namespace megatron {
namespace {

struct TypeRow {
  SafetensorsDtype type;
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array kTypes{
    TypeRow{SafetensorsDtype::BOOL, "BOOL", 1},
    TypeRow{SafetensorsDtype::U8, "U8", 1},
    TypeRow{SafetensorsDtype::I8, "I8", 1},
    TypeRow{SafetensorsDtype::F8_E5M2, "F8_E5M2", 1},
    TypeRow{SafetensorsDtype::F8_E4M3, "F8_E4M3", 1},
    TypeRow{SafetensorsDtype::F8_E8M0, "F8_E8M0", 1},
    TypeRow{SafetensorsDtype::I16, "I16", 2},
    TypeRow{SafetensorsDtype::U16, "U16", 2},
    TypeRow{SafetensorsDtype::F16, "F16", 2},
    TypeRow{SafetensorsDtype::BF16, "BF16", 2},
    TypeRow{SafetensorsDtype::I32, "I32", 4},
    TypeRow{SafetensorsDtype::U32, "U32", 4},
    TypeRow{SafetensorsDtype::F32, "F32", 4},
    TypeRow{SafetensorsDtype::C64, "C64", 8},
    TypeRow{SafetensorsDtype::F64, "F64", 8},
    TypeRow{SafetensorsDtype::I64, "I64", 8},
    TypeRow{SafetensorsDtype::U64, "U64", 8},
};

const TypeRow& row(SafetensorsDtype type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [&](const TypeRow& candidate) { return candidate.type == type; });
}

}  // namespace

std::string_view safetensors_dtype_name(SafetensorsDtype type) { return row(type).name; }

std::optional<SafetensorsDtype> parse_safetensors_dtype(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const TypeRow& candidate) { return candidate.name == name; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::uint64_t element_size(SafetensorsDtype type) { return row(type).bytes; }

}  // namespace megatron
