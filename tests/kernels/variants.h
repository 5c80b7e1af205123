// Lists the variants of a kernel family that this CPU can run, for tests that compare them.
#pragma once

#include <string>
#include <vector>

#include "kernels/cpu/dispatch.h"

namespace megatron::kernels {

template <class Table>
struct Variant {
  std::string name;
  Table kernels;
};

namespace portable {
constexpr bool is_usable() { return true; }
}  // namespace portable

}  // namespace megatron::kernels

#define MEGATRON_ADD_IF_USABLE(isa, Table, name) \
  if (isa::is_usable()) all.push_back({#isa, isa::name()});

/// Defines name_variants(), which returns the variants of the listed instruction sets that this CPU
/// can run, in that order. Use it inside megatron::kernels.
#define MEGATRON_DEFINE_VARIANTS(Table, name, ...)                          \
  MEGATRON_FOR_EACH_ISA(MEGATRON_DECLARE_VARIANT, Table, name, __VA_ARGS__) \
  inline std::vector<Variant<Table>> name##_variants() {                    \
    std::vector<Variant<Table>> all;                                        \
    MEGATRON_FOR_EACH_ISA(MEGATRON_ADD_IF_USABLE, Table, name, __VA_ARGS__) \
    return all;                                                             \
  }
