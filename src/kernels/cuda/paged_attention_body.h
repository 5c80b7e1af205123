// Attention of new tokens to the blocks of a KV cache, with a team for each row and query head, and
// a thread for each key of a block. Sums are made of parts of kPartPositions positions, which one
// team adds in turn, or which a team each computes for long caches: both give the same bits.
#pragma once

#include <limits>

#include "kernels/cuda/team.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::cuda {

inline constexpr int kAttentionTeam = kPagedBlockPositions;
inline constexpr std::int64_t kPartPositions = 8 * kPagedBlockPositions;

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

/// Sums over some keys: the largest score, Σ exp(score − most), and Σ exp(score − most)·value.
template <class C>
struct SoftmaxSums {
  C most, sum;
  C* out;  ///< [dv]
};

/// What a team shares. It bounds the channels of a head.
template <class C>
struct AttentionMemory {
  C query[kMaxHeadChannels], weights[kAttentionTeam];  ///< exp(score − most) of the keys of a block
  C part[kMaxHeadChannels], total[kMaxHeadChannels];  ///< SoftmaxSums::out
};

MEGATRON_ANY_TEAM
template <class C, class Team>
MEGATRON_HOST_DEVICE SoftmaxSums<C> no_keys(C* out, std::int64_t dv, const Team& team) {
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < dv; c += Team::size) out[c] = 0;
  });
  return {-std::numeric_limits<C>::infinity(), 0, out};
}

MEGATRON_ANY_TEAM
template <class C, class Team>
MEGATRON_HOST_DEVICE void add_sums(SoftmaxSums<C>& to, const SoftmaxSums<C>& from, std::int64_t dv,
                                   const Team& team) {
  if (from.sum == 0) return;
  const C most = from.most > to.most ? from.most : to.most, keep = std::exp(to.most - most),
          factor = std::exp(from.most - most);
  C *out = to.out, *more = from.out;
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < dv; c += Team::size)
      out[c] = out[c] * keep + more[c] * factor;
  });
  to.sum = to.sum * keep + from.sum * factor;
  to.most = most;
}

/// Adds the keys of block number `block` of the sequence that the row sees.
MEGATRON_ANY_TEAM
template <class T, class C, class Team>
MEGATRON_HOST_DEVICE void add_block(const PagedAttentionArguments& a, const PagedRow& row,
                                    std::int64_t head, std::int64_t block, SoftmaxSums<C>& sums,
                                    AttentionMemory<C>& memory, const Team& team) {
  const std::int64_t first = block * kPagedBlockPositions, stride = a.g * a.kept, d = a.d,
                     dv = a.dv, behind_query = first - row.position,
                     begin = row.begin > first ? row.begin - first : 0,
                     end = row.end - first < kAttentionTeam ? row.end - first : kAttentionTeam;
  const T* keys = cached_row<T>(a, row, first, head / (a.n / a.g));
  const T* values = keys + (a.kept == d ? 0 : d);
  const C scale = static_cast<C>(a.scale), cap = static_cast<C>(a.softcap),
          slope = a.alibi_slopes == nullptr ? C(0) : static_cast<C>(a.alibi_slopes[head]);
  const C* query = memory.query;
  C *weights = memory.weights, *out = sums.out;
  const C largest = team.template max<C>([=](int key) {
    if (key < begin || key >= end) return -std::numeric_limits<C>::infinity();
    C dot = 0;
    for (std::int64_t c = 0; c < d; ++c) dot += query[c] * load(keys[key * stride + c]);
    C score = dot * scale;
    if (cap > 0) score = std::tanh(score / cap) * cap;
    return weights[key] = score + slope * static_cast<C>(behind_query + key);
  });
  const C most = largest > sums.most ? largest : sums.most, keep = std::exp(sums.most - most);
  const C sum = team.template sum<C>([=](int key) {
    if (key < begin || key >= end) return C(0);
    return weights[key] = std::exp(weights[key] - most);
  });
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < dv; c += Team::size) {
      C value = 0;
      for (std::int64_t key = begin; key < end; ++key)
        value += weights[key] * load(values[key * stride + c]);
      out[c] = out[c] * keep + value;
    }
  });
  team.sync();  // before the next block's scores
  sums.sum = sums.sum * keep + sum;
  sums.most = most;
}

/// Returns the sums of the keys in part number `part` of the sequence that the row sees.
MEGATRON_ANY_TEAM
template <class T, class C, class Team>
MEGATRON_HOST_DEVICE SoftmaxSums<C> sums_of_part(const PagedAttentionArguments& a,
                                                 const PagedRow& row, std::int64_t head,
                                                 std::int64_t part, C* out,
                                                 AttentionMemory<C>& memory, const Team& team) {
  const std::int64_t first = part * kPartPositions, last = first + kPartPositions,
                     begin = row.begin > first ? row.begin : first,
                     end = row.end < last ? row.end : last;
  SoftmaxSums<C> sums = no_keys(out, a.dv, team);
  for (std::int64_t block = begin / kPagedBlockPositions; block * kPagedBlockPositions < end;
       ++block)
    add_block<T>(a, row, head, block, sums, memory, team);
  return sums;
}

MEGATRON_ANY_TEAM
template <class T, class C, class Team>
MEGATRON_HOST_DEVICE void load_query(const PagedAttentionArguments& a, std::int64_t index,
                                     AttentionMemory<C>& memory, const Team& team) {
  const T* from = static_cast<const T*>(a.q.data) + index / a.n * a.q.row_stride +
                  index % a.n * a.q.head_stride;
  const std::int64_t d = a.d;
  C* query = memory.query;
  team.sync();  // after the team's last item
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < d; c += Team::size) query[c] = load(from[c]);
  });
  team.sync();
}

/// Writes the result of item `index` of num_rows·n. The sink is added after all keys.
MEGATRON_ANY_TEAM
template <class T, class C, class Team>
MEGATRON_HOST_DEVICE void store_result(const PagedAttentionArguments& a, std::int64_t index,
                                       const SoftmaxSums<C>& total, const Team& team) {
  C sum = total.sum;
  if (a.sinks != nullptr && sum != 0)
    sum += std::exp(static_cast<C>(a.sinks[index % a.n]) - total.most);
  T* to = static_cast<T*>(a.out) + index * a.dv;
  const C* out = total.out;
  const std::int64_t dv = a.dv;
  team.each([=](int thread) {
    for (std::int64_t c = thread; c < dv; c += Team::size)
      store(to[c], sum == 0 ? C(0) : out[c] / sum);
  });
}

/// Computes item `index` of num_rows·n.
MEGATRON_ANY_TEAM
template <class T, class Team>
MEGATRON_HOST_DEVICE void paged_attention_row(const PagedAttentionArguments& a, std::int64_t index,
                                              const Team& team) {
  using C = Compute<T>;
  auto& memory = team.template shared<AttentionMemory<C>>();
  const PagedRow row = a.rows[index / a.n];
  load_query<T>(a, index, memory, team);
  SoftmaxSums<C> total = no_keys(memory.total, a.dv, team);
  for (std::int64_t part = row.begin / kPartPositions; part * kPartPositions < row.end; ++part)
    add_sums(total, sums_of_part<T>(a, row, index % a.n, part, memory.part, memory, team), a.dv,
             team);
  store_result<T>(a, index, total, team);
}

/// The parts of every row and head in `workspace`, [num_rows·n, parts, 2 + dv] of the computing
/// type.
struct AttentionParts {
  PagedAttentionArguments arguments;
  void* workspace;
  std::int64_t parts;
};

/// Computes item `item` of num_rows·n·parts.
MEGATRON_ANY_TEAM
template <class T, class Team>
MEGATRON_HOST_DEVICE void paged_attention_part(const AttentionParts& call, std::int64_t item,
                                               const Team& team) {
  using C = Compute<T>;
  const PagedAttentionArguments& a = call.arguments;
  auto& memory = team.template shared<AttentionMemory<C>>();
  const std::int64_t index = item / call.parts;
  C* to = static_cast<C*>(call.workspace) + item * (2 + a.dv);
  load_query<T>(a, index, memory, team);
  const SoftmaxSums<C> sums =
      sums_of_part<T>(a, a.rows[index / a.n], index % a.n, item % call.parts, to + 2, memory, team);
  team.each([=](int thread) {
    if (thread == 0) to[0] = sums.most, to[1] = sums.sum;
  });
}

/// Adds the parts of item `index` of num_rows·n, in ascending order.
MEGATRON_ANY_TEAM
template <class T, class Team>
MEGATRON_HOST_DEVICE void paged_attention_total(const AttentionParts& call, std::int64_t index,
                                                const Team& team) {
  using C = Compute<T>;
  const PagedAttentionArguments& a = call.arguments;
  C* part = static_cast<C*>(call.workspace) + index * call.parts * (2 + a.dv);
  SoftmaxSums<C> total = no_keys(team.template shared<AttentionMemory<C>>().total, a.dv, team);
  for (std::int64_t i = 0; i < call.parts; ++i, part += 2 + a.dv)
    add_sums(total, SoftmaxSums<C>{part[0], part[1], part + 2}, a.dv, team);
  store_result<T>(a, index, total, team);
}

/// Below this many rows and heads, the parts of a row are computed by teams of their own.
inline constexpr std::int64_t kManyTeams = 2048;

/// Returns into how many parts the launcher divides a row and head.
MEGATRON_HOST_DEVICE inline std::int64_t attention_parts(const PagedAttentionArguments& a) {
  return a.num_rows * a.n < kManyTeams ? (a.longest + kPartPositions - 1) / kPartPositions : 1;
}

}  // namespace megatron::kernels::cuda
