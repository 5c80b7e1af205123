#include "megatron/checkpoint/stored_type.h"

#include <algorithm>
#include <array>

namespace megatron {
namespace {

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array kTypes{
    TypeRow{StoredType::BOOL, "BOOL", 1},       TypeRow{StoredType::U8, "U8", 1},           TypeRow{StoredType::I8, "I8", 1},
    TypeRow{StoredType::F8_E5M2, "F8_E5M2", 1}, TypeRow{StoredType::F8_E4M3, "F8_E4M3", 1}, TypeRow{StoredType::F8_E8M0, "F8_E8M0", 1},
    TypeRow{StoredType::I16, "I16", 2},         TypeRow{StoredType::U16, "U16", 2},         TypeRow{StoredType::F16, "F16", 2},
    TypeRow{StoredType::BF16, "BF16", 2},       TypeRow{StoredType::I32, "I32", 4},         TypeRow{StoredType::U32, "U32", 4},
    TypeRow{StoredType::F32, "F32", 4},         TypeRow{StoredType::C64, "C64", 8},         TypeRow{StoredType::F64, "F64", 8},
    TypeRow{StoredType::I64, "I64", 8},         TypeRow{StoredType::U64, "U64", 8},
};

const TypeRow& row(StoredType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& candidate) { return candidate.type == type; });
}

}  // namespace

std::string_view stored_type_name(StoredType type) { return row(type).name; }

std::optional<StoredType> find_stored_type(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& candidate) { return candidate.name == name; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::uint64_t element_bytes(StoredType type) { return row(type).bytes; }

}  // namespace megatron
