// How the backward pass is cut into parts, and what lies in the memory that it is lent. Included
// once per instruction set inside the namespace MEGATRON_KERNEL_ISA.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_operands.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// How gradients become parts, by the shape alone. A part walks over its blocks of keys for each of
/// its heads. With few groups the heads of a group are parts of their own and leave partial dk and
/// dv; with few heads the keys are dealt out to several parts, which leave partial dq.
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
  std::int64_t heads;  ///< of a part, of one group
  bool splits_heads;
  Span keys;
  std::int64_t chunks;  ///< chunk c of C has the blocks c, 2C − 1 − c, 2C + c, …: under a causal
                        ///< mask all have the same work
  std::int64_t query_blocks;
  std::int64_t q_stride, v_stride;  ///< of f32 sums over d and dv channels

  std::int64_t parts(const AttentionArguments& a) const { return a.b * a.n / heads * chunks; }
  bool has(std::int64_t chunk, std::int64_t block) const {
    const std::int64_t place = (block - keys.begin) % (2 * chunks);
    return place == chunk || place == 2 * chunks - 1 - chunk;
  }
};

/// Sums that several parts have computed, in f32.
struct BackwardShared {
  BackwardShared(const AttentionArguments& a, const BackwardShape& shape, void* memory) {
    Arena arena(memory);
    dq = arena.take<float>(shape.chunks > 1 ? a.b * a.n * shape.chunks * a.sq * a.d : 0);
    dk = arena.take<float>(shape.splits_heads ? a.b * a.n * a.sk * a.d : 0);
    dv = arena.take<float>(shape.splits_heads ? a.b * a.n * a.sk * a.dv : 0);
    bytes = arena.bytes();
  }
  float* dq;  ///< [b, n, chunks, sq, d]
  float* dk;  ///< [b, n, sk, d]
  float* dv;  ///< [b, n, sk, dv]
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
    const std::int64_t kept = shape.heads > 1
                                  ? shape.keys.size()
                                  : 1;  // blocks of keys whose panels and sums outlive a head
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
  float *dq, *lse, *delta;  ///< of a head; lse in base 2, ∞ where nothing is seen
  char* panels;  ///< of a block of keys: keys and values with channels as depth, keys with keys as
                 ///< depth
  float *dk, *dv;
  float *scores, *dscores;
  std::uint16_t *probability_rows, *dscore_rows;  ///< in bf16, where products are
  std::uint32_t *probability_steps,
      *dscore_steps;  ///< the same with queries as depth: [steps, keys], or lines of keys for
                      ///< products that read those
  float* slopes;
  std::uint32_t* gathered;
  std::int64_t query_bytes, dout_bytes, key_bytes, value_bytes, depth_bytes, bytes;
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
