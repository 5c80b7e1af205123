// Inline functions outside the namespace of an instruction set that its kernels call.
#pragma once

/// The compiler emits no copy of such a function. An inline function that it does emit is one
/// symbol for the whole program, and the linker may keep the copy that an AVX-512 object file has.
#define MEGATRON_KERNEL_INLINE [[gnu::always_inline]] inline
