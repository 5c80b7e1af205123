// Functions that kernels and the host share.
#pragma once

#if defined(__CUDACC__)
#define MEGATRON_ON_DEVICE __host__ __device__
#else
#define MEGATRON_ON_DEVICE
#endif
