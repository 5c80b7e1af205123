// MEGATRON_HOST_DEVICE marks functions that CUDA kernels and the host share.
#pragma once

#if defined(__CUDACC__)
#define MEGATRON_HOST_DEVICE __host__ __device__
#else
#define MEGATRON_HOST_DEVICE
#endif
