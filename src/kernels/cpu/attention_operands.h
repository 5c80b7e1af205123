// Packs rows of q, k, v and gradients as operands of the micro-kernel.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_masking.h"
#include "kernels/cpu/conversions.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Rows of `channels` numbers, which lie `stride` elements apart.
struct Rows {
  const void* data;
  Type type;
  std::int64_t stride, count, channels;
};

inline Rows rows_of(const HeadsView& x, Type type, std::int64_t sample, std::int64_t head,
                    std::int64_t first, std::int64_t count, std::int64_t channels) {
  const std::int64_t offset =
      first * x.position_stride + sample * x.sample_stride + head * x.head_stride;
  return {static_cast<const char*>(x.data) + offset * size_of(type), type, x.position_stride, count,
          channels};
}

inline std::int64_t panels_of(std::int64_t columns) { return blocks_of(columns, kPanelColumns); }

/// Prefetches a row. Rows of a mixed tensor lie pages apart, where hardware prefetchers do not
/// reach.
inline void prefetch_row(const Rows& rows, std::int64_t r) {
  const char* row = static_cast<const char*>(rows.data) + r * rows.stride * size_of(rows.type);
  for (std::int64_t byte = 0; byte < rows.channels * size_of(rows.type); byte += 64)
    __builtin_prefetch(row + byte, 0, 2);
}

/// Copies rows one after another, converted to the micro-kernel's type, with channels as depth.
/// Returns the copies, ready for packing.
inline Rows copy_rows(const MicroKernel& micro_kernel, const Rows& rows, std::uint32_t* to,
                      std::int64_t to_stride) {
  constexpr std::int64_t kAhead = 16;
  for (std::int64_t r = 0; r < std::min(kAhead, rows.count); ++r) prefetch_row(rows, r);
  for (std::int64_t first = 0; first < rows.count; first += kAhead) {
    for (std::int64_t r = first + kAhead; r < std::min(first + 2 * kAhead, rows.count); ++r)
      prefetch_row(rows, r);
    micro_kernel.copy(
        {.from = static_cast<const char*>(rows.data) + first * rows.stride * size_of(rows.type),
         .type = rows.type,
         .depth_stride = 1,
         .cross_stride = rows.stride,
         .depth = rows.channels,
         .count = std::min(kAhead, rows.count - first),
         .to = to + first * to_stride,
         .to_stride = to_stride});
  }
  return {to, micro_kernel.type, to_stride * 4 / size_of(micro_kernel.type), rows.count,
          rows.channels};
}

/// Packs panels of 32 rows whose depth is the channels. Panel p begins at p·packed_bytes(channels).
inline void pack_across(const MicroKernel& micro_kernel, const Rows& rows, void* to) {
  micro_kernel.pack({.from = rows.data,
                     .type = rows.type,
                     .depth_stride = 1,
                     .cross_stride = rows.stride,
                     .depth = rows.channels,
                     .count = rows.count,
                     .to = to,
                     .to_stride = kPanelColumns,
                     .panel_stride = micro_kernel.packed_bytes(rows.channels)});
}

/// Packs panels of 32 channels whose depth is the rows. Panel p begins at p·packed_bytes(room),
/// where room is at least the number of rows.
inline void pack_along(const MicroKernel& micro_kernel, const Rows& rows, std::int64_t room,
                       void* to) {
  micro_kernel.pack({.from = rows.data,
                     .type = rows.type,
                     .depth_stride = rows.stride,
                     .cross_stride = 1,
                     .depth = rows.count,
                     .count = rows.channels,
                     .to = to,
                     .to_stride = kPanelColumns,
                     .panel_stride = micro_kernel.packed_bytes(room)});
}

/// Returns the keys (or values) of a block. When the first key of the call lies inside the block,
/// they are copied to `gathered` (kKeys rows) behind rows of zeros, so that every key keeps its
/// place. `copies` asks for a copy in any case, for callers that read the rows more than once.
inline Rows block_rows(const AttentionArguments& a, const MicroKernel& micro_kernel,
                       const HeadsView& x, std::int64_t channels, std::int64_t sample,
                       std::int64_t group, std::int64_t block, std::uint32_t* gathered,
                       bool copies) {
  const std::int64_t start = block * kKeys, first = std::max(start, a.k_start),
                     end = std::min(start + kKeys, a.k_start + a.sk);
  const std::int64_t steps = micro_kernel.steps_of(channels), before = first - start;
  const Rows source = rows_of(x, a.type, sample, group, first - a.k_start, end - first, channels);
  if (before == 0 && !copies) return source;
  std::memset(gathered, 0, static_cast<std::size_t>(4 * before * steps));
  Rows rows = copy_rows(micro_kernel, source, gathered + before * steps, steps);
  rows.data = gathered;
  rows.count += before;
  return rows;
}

/// Number of steps of the largest block that is gathered.
inline std::int64_t gathered_steps(const AttentionArguments& a, const MicroKernel& micro_kernel) {
  return kKeys * micro_kernel.steps_of(std::max(a.d, a.dv));
}

/// Stores factor·x in the storage type, rounded once.
inline void store_row(const float* x, float factor, void* to, Type type, std::int64_t count) {
  with_type(type, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      auto* out = static_cast<T*>(to);
      for (std::int64_t i = 0; i < count; ++i) store(out[i], x[i] * factor);
    }
  });
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
