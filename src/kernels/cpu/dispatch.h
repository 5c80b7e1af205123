// Chooses at run time among the variants of a kernel family that CMake compiles, one for each
// instruction set (cmake/kernels.cmake). Each variant lives in the namespace of its instruction
// set, MEGATRON_KERNEL_ISA, and defines the same function there, which returns the family's table.
//
//   namespace megatron::kernels::MEGATRON_KERNEL_ISA {
//   NormKernels norm_kernels() { return {norm, norm_backward}; }
//   }
//   MEGATRON_DISPATCH(NormKernels, norm_kernels)
//
// Code that a variant shares with others is compiled with several sets of flags. It must be in
// the namespace MEGATRON_KERNEL_ISA, or be marked MEGATRON_KERNEL_INLINE (kernels/cpu/inline.h). If
// it did neither, the linker could keep the AVX-512 copy for every CPU.
#pragma once

namespace megatron::kernels {

// These functions return whether this process may use the variants of an instruction set.
namespace avx2 {
bool is_usable();
}
namespace avx512 {
bool is_usable();
}
namespace avx512bf16 {
bool is_usable();
}
namespace amx {
bool is_usable();
/// Asks Linux for permission to use the tiles, and compares one small GEMM with known sums. Its
/// code needs cpu_has_amx(), also where it does not multiply.
bool passes_self_test();
}  // namespace amx

}  // namespace megatron::kernels

/// Expands to the instruction sets of the list, all of x86-64, where they exist: nowhere else.
#if defined(__x86_64__)
#define MEGATRON_X86_ISAS(...) __VA_ARGS__
#else
#define MEGATRON_X86_ISAS(...)
#endif

/// Expands macro(isa, Table, name) for each instruction set of the list, eight at most.
#define MEGATRON_FOR_EACH_ISA(macro, Table, name, ...) \
  __VA_OPT__(MEGATRON_SCAN(MEGATRON_FOR_NEXT_ISA(macro, Table, name, __VA_ARGS__)))
#define MEGATRON_FOR_NEXT_ISA(macro, Table, name, isa, ...) \
  macro(isa, Table, name)                                   \
      __VA_OPT__(MEGATRON_FOR_MORE_ISAS MEGATRON_PARENTHESES(macro, Table, name, __VA_ARGS__))
#define MEGATRON_FOR_MORE_ISAS() MEGATRON_FOR_NEXT_ISA
#define MEGATRON_PARENTHESES ()
#define MEGATRON_SCAN(...) MEGATRON_SCAN_TWICE(MEGATRON_SCAN_TWICE(__VA_ARGS__))
#define MEGATRON_SCAN_TWICE(...) MEGATRON_SCAN_ONCE(MEGATRON_SCAN_ONCE(__VA_ARGS__))
#define MEGATRON_SCAN_ONCE(...) __VA_ARGS__

/// Declares the function of one variant. Use it inside megatron::kernels.
#define MEGATRON_DECLARE_VARIANT(isa, Table, name) \
  namespace isa {                                  \
  Table name();                                    \
  }
#define MEGATRON_RETURN_IF_USABLE(isa, Table, name) \
  if (isa::is_usable()) return isa::name();

/// Defines megatron::kernels::name(), which chooses once: it takes the first usable instruction set
/// of the list, or `portable` if there is none. Use it outside all namespaces.
#define MEGATRON_DISPATCH_AMONG(Table, name, ...)                                \
  namespace megatron::kernels {                                                  \
  MEGATRON_FOR_EACH_ISA(MEGATRON_DECLARE_VARIANT, Table, name, __VA_ARGS__)      \
  const Table& name() {                                                          \
    static const Table chosen = []() -> Table {                                  \
      MEGATRON_FOR_EACH_ISA(MEGATRON_RETURN_IF_USABLE, Table, name, __VA_ARGS__) \
      return portable::name();                                                   \
    }();                                                                         \
    return chosen;                                                               \
  }                                                                              \
  }  // namespace megatron::kernels

/// Dispatches among all instruction sets that CMake compiles this file for. Only the portable
/// variant of the file defines the function. In the other variants the macro is empty.
#if defined(MEGATRON_KERNEL_IS_PORTABLE)
#define MEGATRON_DISPATCH(Table, name) MEGATRON_DISPATCH_AMONG(Table, name, MEGATRON_KERNEL_ISAS)
#else
#define MEGATRON_DISPATCH(Table, name)
#endif
