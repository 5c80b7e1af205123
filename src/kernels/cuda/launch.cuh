// Launches a body over many items or rows. Grids have a bounded size, and their threads stride.
// Also makes the error text that callers get.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/team.h"

namespace megatron::kernels::cuda {

inline constexpr int kBlock = 256;
inline constexpr std::int64_t kMaxBlocks = 1 << 16;

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((items + per_block - 1) / per_block, 1, kMaxBlocks));
}

/// Returns null, or the error text of the launches so far.
inline const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

/// Calls body(call, item), a function of host and device, for every item in [0, count).
template <auto body, class Call>
__global__ void item_kernel(Call call, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       item < count; item += stride)
    body(call, item);
}

template <auto body, class Call>
void for_each_item(const Call& call, std::int64_t count, void* stream) {
  if (count > 0)
    item_kernel<body>
        <<<blocks_for(count, kBlock), kBlock, 0, static_cast<cudaStream_t>(stream)>>>(call, count);
}

/// Calls body(call, index, team) with a team of kSize threads for every index in [0, count).
template <auto body, int kSize, class Call>
__global__ void team_kernel(Call call, std::int64_t count) {
  const DeviceTeam<kSize> team;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       index < count; index += stride) {
    body(call, index, team);
  }
}

template <auto body, int kSize, class Call>
void for_each_team(const Call& call, std::int64_t count, void* stream) {
  constexpr int kPerBlock = DeviceTeam<kSize>::kPerBlock;
  if (count <= 0) return;
  team_kernel<body, kSize><<<blocks_for(count, kPerBlock), dim3(kSize, kPerBlock), 0,
                             static_cast<cudaStream_t>(stream)>>>(call, count);
}

/// Calls use.operator()<T>() with the element type that `type` names.
template <class Use>
void with_type(Type type, const Use& use) {
  switch (type) {
    case Type::f32:
      return use.template operator()<float>();
    case Type::f64:
      return use.template operator()<double>();
    case Type::bf16:
      return use.template operator()<Bf16>();
    case Type::f16:
      return use.template operator()<Half>();
  }
}

/// Calls use.operator()<A, B>() for two types that are equal, or of which one is f32 and the other
/// 16 bits wide.
template <class Use>
void with_types(Type a, Type b, const Use& use) {
  with_type(a, [&]<class A>() {
    with_type(b, [&]<class B>() {
      constexpr bool is_mixed = (std::is_same_v<A, float> && sizeof(B) == 2) ||
                                (std::is_same_v<B, float> && sizeof(A) == 2);
      if constexpr (std::is_same_v<A, B> || is_mixed) use.template operator()<A, B>();
    });
  });
}

}  // namespace megatron::kernels::cuda
