// Cuts the backward pass into parts, and lays out the memory that its caller lends it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_operands.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Cuts the gradients into parts by the shape alone. A part walks over its blocks of keys for each
/// of its heads. With few groups, the heads of a group are separate parts, which leave partial dk
/// and dv. With few heads, the keys are dealt out to several parts, which leave partial dq.
struct BackwardShape {
  static constexpr std::int64_t kEnoughParts = 8;

  explicit BackwardShape(const AttentionArguments& a)
      : micro_kernel(*a.micro_kernel),
        heads(a.b * a.g >= kEnoughParts ? a.heads_per_group() : 1),
        splits_heads(heads < a.heads_per_group()),
        keys(blocks_covering({a.k_start, a.k_start + a.sk})),
        chunks(std::max<std::int64_t>(
            1, std::min(blocks_of(kEnoughParts, std::max<std::int64_t>(1, a.b * a.n / heads)),
                        keys.size()))),
        query_blocks(blocks_of(a.sq, kBackwardQueries)),
        q_stride(panels_of(a.d) * kPanelColumns),
        v_stride(panels_of(a.dv) * kPanelColumns) {}

  const MicroKernel& micro_kernel;
  std::int64_t heads;  ///< heads of a part, all of one group
  bool splits_heads;
  Span keys;
  /// Chunk c of C has the blocks c, 2C − 1 − c, 2C + c, … So all chunks have the same work under a
  /// causal mask.
  std::int64_t chunks;
  std::int64_t query_blocks;
  std::int64_t q_stride, v_stride;  ///< row strides of the f32 sums over d and dv channels

  std::int64_t parts(const AttentionArguments& a) const { return a.b * a.n / heads * chunks; }
  bool has(std::int64_t chunk, std::int64_t block) const {
    const std::int64_t place = (block - keys.begin) % (2 * chunks);
    return place == chunk || place == 2 * chunks - 1 - chunk;
  }
};

/// Sums in f32 to which several parts contribute.
struct BackwardShared {
  BackwardShared(const AttentionArguments& a, const BackwardShape& shape, void* memory) {
    Arena arena(memory);
    dq = arena.take<float>(shape.chunks > 1 ? a.b * a.n * shape.chunks * a.sq * a.d : 0);
    dk = arena.take<float>(shape.splits_heads ? a.b * a.n * a.sk * a.d : 0);
    dv = arena.take<float>(shape.splits_heads ? a.b * a.n * a.sk * a.dv : 0);
    distance_bias = arena.take<float>(
        a.distance_bias != nullptr ? a.b * a.n * shape.chunks * a.distance_stride : 0);
    bytes = arena.bytes();
  }
  float* dq;             ///< [b, n, chunks, sq, d]
  float* dk;             ///< [b, n, sk, d]
  float* dv;             ///< [b, n, sk, dv]
  float* distance_bias;  ///< [b, n, chunks, distance_stride], or nothing
  std::int64_t bytes;
};

struct BackwardWorkspace {
  BackwardWorkspace(const AttentionArguments& a, const BackwardShape& shape, void* memory) {
    const MicroKernel& micro_kernel = shape.micro_kernel;
    Arena arena(memory);
    queries = arena.take<std::uint32_t>(a.sq * micro_kernel.steps_of(a.d));
    douts = arena.take<std::uint32_t>(a.sq * micro_kernel.steps_of(a.dv));
    query_bytes = panels_of(a.d) * micro_kernel.packed_bytes(kBackwardQueries);
    dout_bytes = panels_of(a.dv) * micro_kernel.packed_bytes(kBackwardQueries);
    query_panels = arena.take<char>(shape.query_blocks * query_bytes);
    dout_panels = arena.take<char>(shape.query_blocks * dout_bytes);
    dq = arena.take<float>(a.sq * shape.q_stride);
    lse = arena.take<float>(a.sq);
    delta = arena.take<float>(a.sq);
    key_bytes = kKeys / kPanelColumns * micro_kernel.packed_bytes(a.d);
    value_bytes = kKeys / kPanelColumns * micro_kernel.packed_bytes(a.dv);
    depth_bytes = panels_of(a.d) * micro_kernel.packed_bytes(kKeys);
    // This many blocks of keys keep their panels and sums from head to head.
    const std::int64_t kept = shape.heads > 1 ? shape.keys.size() : 1;
    panels = arena.take<char>(kept * (key_bytes + value_bytes + depth_bytes));
    dk = arena.take<float>(kept * kKeys * shape.q_stride);
    dv = arena.take<float>(kept * kKeys * shape.v_stride);
    scores = arena.take<float>(kBackwardQueries * kKeys);
    dscores = arena.take<float>(kBackwardQueries * kKeys);
    probability_steps = arena.take<std::uint32_t>(micro_kernel.steps_of(kBackwardQueries) * kKeys);
    dscore_steps = arena.take<std::uint32_t>(micro_kernel.steps_of(kBackwardQueries) * kKeys);
    probability_rows = arena.take<std::uint16_t>(kBackwardQueries * kKeys);
    dscore_rows = arena.take<std::uint16_t>(kBackwardQueries * kKeys);
    slopes = arena.take<float>(kKeys);
    gathered = arena.take<std::uint32_t>(gathered_steps(a, micro_kernel));
    bytes = arena.bytes();
  }
  std::uint32_t *queries, *douts;  ///< rows of a head, one after another
  char *query_panels, *dout_panels;
  /// These belong to a head. lse has base 2 and is ∞ where a query sees nothing.
  float *dq, *lse, *delta;
  /// Panels of a block of keys: keys and values with channels as depth, and keys with keys as
  /// depth.
  char* panels;
  float *dk, *dv;
  float *scores, *dscores;
  /// Rows in bf16, when the micro-kernel multiplies bf16.
  std::uint16_t *probability_rows, *dscore_rows;
  /// The same numbers with queries as depth: [steps, keys], or lines of keys for micro-kernels with
  /// needs_packed_rows.
  std::uint32_t *probability_steps, *dscore_steps;
  float* slopes;
  std::uint32_t* gathered;
  std::int64_t query_bytes, dout_bytes, key_bytes, value_bytes, depth_bytes, bytes;
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
