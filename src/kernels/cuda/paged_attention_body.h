// Attention of new tokens to the blocks of a KV cache. A team computes a part of the keys of a row
// and query head, with a thread for each key of a block, and the parts are then added. Parts begin
// at fixed positions, so a result depends only on the keys that the row sees.
#pragma once

#include "kernels/cuda/team.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::cuda {

inline constexpr int kAttentionTeam = kPagedBlockPositions;

/// Returns the address of what a cache keeps of a position and group.
template <class T>
MEGATRON_HOST_DEVICE T* cached_row(const PagedAttentionArguments& a, const PagedRow& row,
                                   std::int64_t position, std::int64_t group) {
  T* block = reinterpret_cast<T*>(a.blocks[row.table + position / kPagedBlockPositions]);
  return block + (position % kPagedBlockPositions * a.g + group) * a.kept;
}

/// Appends element `item` of num_rows·g·kept.
template <class T>
MEGATRON_HOST_DEVICE void append_item(const PagedAttentionArguments& a, std::int64_t item) {
  const std::int64_t c = item % a.kept, group = item / a.kept % a.g, index = item / a.kept / a.g;
  const PagedRow row = a.rows[index];
  if (row.position < 0) return;
  const RowHeads& from = c < a.d ? a.k : a.v;
  cached_row<T>(a, row, row.position, group)[c] = static_cast<const T*>(
      from.data)[index * from.row_stride + group * from.head_stride + (c < a.d ? c : c - a.d)];
}

/// What a team shares: its query, and the weights exp(score − most) of the keys of a block.
template <class C>
struct AttentionMemory {
  C query[kMaxHeadChannels], weights[kAttentionTeam];
};

/// Returns the score of a key whose position is that of the query plus `distance`.
template <class T, class C>
MEGATRON_HOST_DEVICE C score_of(const PagedAttentionArguments& a, std::int64_t head, const C* query,
                                const T* key, std::int64_t distance) {
  C score = 0;
  for (std::int64_t c = 0; c < a.d; ++c) score += query[c] * load(key[c]);
  const C cap = static_cast<C>(a.softcap);
  score *= static_cast<C>(a.scale);
  if (cap > 0) score = std::tanh(score / cap) * cap;
  return a.alibi_slopes == nullptr
             ? score
             : score + static_cast<C>(a.alibi_slopes[head]) * static_cast<C>(distance);
}

/// Computes item `item` of num_rows·n·parts: the largest score `most` of its keys, Σ exp(score −
/// most), and Σ exp(score − most)·value.
MEGATRON_ANY_TEAM
template <class T, class Team>
MEGATRON_HOST_DEVICE void paged_attention_part(const PagedAttentionArguments& a, std::int64_t item,
                                               const Team& team) {
  using C = Compute<T>;
  const std::int64_t index = item / a.parts, head = index % a.n, d = a.d, dv = a.dv,
                     stride = a.g * a.kept, first = item % a.parts * kPagedPartPositions,
                     last = first + kPagedPartPositions;
  const PagedRow row = a.rows[index / a.n];
  const std::int64_t begin = row.begin > first ? row.begin : first,
                     end = row.end < last ? row.end : last;
  const T* q =
      static_cast<const T*>(a.q.data) + index / a.n * a.q.row_stride + head * a.q.head_stride;
  C *sums = static_cast<C*>(a.workspace) + item * (2 + dv), *out = sums + 2;
  auto& memory = team.template shared<AttentionMemory<C>>();
  C *query = memory.query, *weights = memory.weights;
  team.sync();  // the team may still read the query of its last item
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < d; c += Team::size) query[c] = load(q[c]);
    for (std::int64_t c = thread; c < dv; c += Team::size) out[c] = 0;
  });
  C most = static_cast<C>(-INFINITY), sum = 0;
  for (std::int64_t start = begin - begin % kPagedBlockPositions; begin < end && start < end;
       start += kPagedBlockPositions) {
    team.sync();  // the query has been written, and the weights of the last block have been read
    const T* keys = cached_row<T>(a, row, start, head / (a.n / a.g));
    const T* values = keys + (a.kept == d ? 0 : d);
    const std::int64_t from = begin > start ? begin - start : 0,
                       to = end - start < kAttentionTeam ? end - start : kAttentionTeam;
    const C largest = team.template max<C>([&](int key) {
      if (key < from || key >= to) return static_cast<C>(-INFINITY);
      return weights[key] =
                 score_of(a, head, query, keys + key * stride, start + key - row.position);
    });
    const C before = most;
    if (largest > most) most = largest;
    const C keep = std::exp(before - most);
    sum = sum * keep + team.template sum<C>([&](int key) {
      if (key < from || key >= to) return C(0);
      return weights[key] = std::exp(weights[key] - most);
    });
    team.each([=](int thread) {
      for (std::int64_t c = thread; c < dv; c += Team::size) {
        C value = 0;
        for (std::int64_t key = from; key < to; ++key)
          value += weights[key] * load(values[key * stride + c]);
        out[c] = out[c] * keep + value;
      }
    });
  }
  team.each([=](int thread) {
    if (thread == 0) sums[0] = most, sums[1] = sum;
  });
}

/// Adds the parts of element `item` of num_rows·n·dv, and the sink.
template <class T>
MEGATRON_HOST_DEVICE void paged_attention_total(const PagedAttentionArguments& a,
                                                std::int64_t item) {
  using C = Compute<T>;
  const std::int64_t index = item / a.dv, size = 2 + a.dv;
  const C* sums = static_cast<const C*>(a.workspace) + index * a.parts * size;
  const C none = static_cast<C>(-INFINITY),
          sink = a.sinks == nullptr ? none : static_cast<C>(a.sinks[index % a.n]);
  C most = sink, out = 0;
  for (std::int64_t i = 0; i < a.parts; ++i) {
    if (sums[i * size] > most) most = sums[i * size];
  }
  C sum = sink == none ? C(0) : std::exp(sink - most);
  for (std::int64_t i = 0; i < a.parts; ++i, sums += size) {
    if (sums[1] == 0) continue;  // the row sees no key of this part
    const C weight = std::exp(sums[0] - most);
    sum += weight * sums[1];
    out += weight * sums[2 + item % a.dv];
  }
  store(static_cast<T*>(a.out)[item], sum == 0 ? C(0) : out / sum);
}

}  // namespace megatron::kernels::cuda
