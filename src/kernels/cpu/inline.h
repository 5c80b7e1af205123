// MEGATRON_KERNEL_INLINE marks inline functions outside the namespaces of the instruction sets.
#pragma once

/// The compiler never emits a copy of such a function. An inline function that it does emit is one
/// symbol in the whole program, and the linker may keep the copy of an AVX-512 object file.
#define MEGATRON_KERNEL_INLINE [[gnu::always_inline]] inline
