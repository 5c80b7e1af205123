// The forward pass of attention.
#pragma once

#include <math.h>

#include <cstring>

#include "kernels/cpu/attention_codes.h"
#include "kernels/cpu/attention_operands.h"
#include "kernels/cpu/attention_scores.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Cuts the queries into parts. The rows of a block are `positions` queries of `heads` heads that
/// share their keys, ordered by position.
struct ForwardShape {
  explicit ForwardShape(const AttentionArguments& a)
      : micro_kernel(*a.micro_kernel),
        heads(std::min(a.heads_per_group(), kForwardQueries)),
        positions(kForwardQueries / heads),
        head_blocks(blocks_of(a.heads_per_group(), heads)),
        query_blocks(blocks_of(a.sq, positions)),
        keys(visible_blocks(a)),
        key_bytes(kKeys / kPanelColumns * micro_kernel.packed_bytes(a.d)),
        value_bytes(panels_of(a.dv) * micro_kernel.packed_bytes(kKeys)),
        shares_packed(head_blocks * query_blocks != 1) {}

  const MicroKernel& micro_kernel;
  std::int64_t heads, positions, head_blocks, query_blocks;
  Span keys;
  std::int64_t key_bytes, value_bytes;  ///< bytes of one packed block
  /// When false, each block of keys is used once and is packed right before its use.
  bool shares_packed;

  std::int64_t block_bytes() const { return key_bytes + value_bytes; }
  std::int64_t parts(const AttentionArguments& a) const {
    return a.b * a.g * query_blocks * head_blocks;
  }
};

struct ForwardWorkspace {
  ForwardWorkspace(const AttentionForwardArguments& a, const ForwardShape& shape, void* memory) {
    Arena arena(memory);
    queries = arena.take<std::uint32_t>(kForwardQueries * shape.micro_kernel.steps_of(a.d));
    scores = arena.take<float>(kForwardQueries * kKeys);
    halves = arena.take<std::uint16_t>(kForwardQueries * kKeys);
    out_stride = panels_of(a.dv) * kPanelColumns;
    out = arena.take<float>(kForwardQueries * out_stride);
    sums = arena.take<float>(kForwardQueries * kLanes);
    top = arena.take<float>(kForwardQueries);
    const bool is_coded = a.packed.type != KvCacheType::same;
    packed = arena.take<char>(shape.shares_packed && !is_coded ? 0 : shape.block_bytes());
    gathered = arena.take<std::uint32_t>(gathered_steps(a, shape.micro_kernel));
    bytes = arena.bytes();
  }
  std::uint32_t* queries;
  float* scores;
  std::uint16_t* halves;  ///< probabilities in bf16, when the micro-kernel multiplies bf16
  float* out;
  float* sums;  ///< Σ exp of each row in kLanes lanes, lane = key position mod kLanes
  float* top;   ///< largest exponent of each row
  char* packed;
  std::uint32_t* gathered;
  std::int64_t out_stride, bytes;
};

inline void pack_block(const AttentionArguments& a, const ForwardShape& shape, std::int64_t unit,
                       std::int64_t block, char* to, std::uint32_t* gathered) {
  const std::int64_t sample = unit / a.g, group = unit % a.g;
  pack_across(shape.micro_kernel,
              block_rows(a, shape.micro_kernel, a.k, a.d, sample, group, block, gathered, false),
              to);
  pack_along(shape.micro_kernel,
             block_rows(a, shape.micro_kernel, a.v, a.dv, sample, group, block, gathered, false),
             kKeys, to + shape.key_bytes);
}

/// Returns a block of a KV cache.
inline char* cached_block(const AttentionForwardArguments& a, const ForwardShape& shape,
                          std::int64_t unit, std::int64_t block) {
  return a.packed.memory[a.packed.numbers[block]] +
         unit * packed_block_bytes(shape.micro_kernel, a.d, a.dv, a.packed.type);
}

/// The blocks that a pass packs: all that a query sees, or those of a cache that get new keys.
inline Span blocks_to_pack(const AttentionForwardArguments& a, const ForwardShape& shape) {
  return a.packed.memory == nullptr ? shape.keys : blocks_covering({a.sk - a.packed.num_new, a.sk});
}

/// Writes a row of values to a position of a packed block. `Number` is a step in f32, or half of
/// one in bf16. The first half of a step clears the second.
template <class Number>
void write_values(const void* row, std::int64_t count, std::int64_t position,
                  std::int64_t panel_bytes, char* to) {
  constexpr std::int64_t kNumbers = 4 / sizeof(Number);  // of a step
  const auto* from = static_cast<const Number*>(row);
  to += position / kNumbers * 4 * kPanelColumns;
  for (std::int64_t c = 0; c < count; ++c) {
    char* const step = to + c / kPanelColumns * panel_bytes + c % kPanelColumns * 4;
    const std::uint32_t whole = from[c];
    if (position % kNumbers == 0) {
      std::memcpy(step, &whole, sizeof whole);
    } else {
      std::memcpy(step + sizeof(Number), from + c, sizeof(Number));
    }
  }
}

/// Packs the new keys and values of a block of a KV cache behind those that it holds. `copies` has
/// room for gathered_steps().
inline void append_to_block(const AttentionForwardArguments& a, const ForwardShape& shape,
                            std::int64_t unit, std::int64_t block, std::uint32_t* copies) {
  const MicroKernel& micro_kernel = shape.micro_kernel;
  const std::int64_t start = block * kKeys, new_start = a.sk - a.packed.num_new,
                     first = std::max(start, new_start), end = std::min(start + kKeys, a.sk);
  const auto new_rows = [&](const HeadsView& x, std::int64_t channels) {
    return rows_of(x, a.type, unit / a.g, unit % a.g, first - new_start, end - first, channels);
  };
  const Rows key_rows = new_rows(a.k, a.d), value_rows = new_rows(a.v, a.dv);
  char *const keys = cached_block(a, shape, unit, block), *const values = keys + shape.key_bytes;
  if (a.packed.type != KvCacheType::same) {
    const std::int64_t bytes = packed_block_bytes(micro_kernel, a.d, a.dv, a.packed.type);
    if (first == start) std::memset(keys, 0, static_cast<std::size_t>(bytes));
    return with_coded_block(a, keys, [&](auto to) {
      for (std::int64_t r = 0; r < end - first; ++r)
        to.write(key_rows, value_rows, r, first - start + r, reinterpret_cast<float*>(copies));
    });
  }
  if (first == start) {
    if (end - start < kKeys) std::memset(keys, 0, static_cast<std::size_t>(shape.block_bytes()));
    pack_across(micro_kernel, key_rows, keys);
    pack_along(micro_kernel, value_rows, kKeys, values);
    return;
  }
  const std::int64_t key_steps = micro_kernel.steps_of(a.d);
  copy_rows(micro_kernel, key_rows, copies, key_steps);
  for (std::int64_t r = 0; r < end - first; ++r) {
    const std::int64_t position = first - start + r;
    auto* const to = reinterpret_cast<std::uint32_t*>(keys + position / kPanelColumns *
                                                                 micro_kernel.packed_bytes(a.d));
    for (std::int64_t s = 0; s < key_steps; ++s)
      to[s * kPanelColumns + position % kPanelColumns] = copies[r * key_steps + s];
  }
  const bool in_pairs = micro_kernel.type == Type::bf16;
  const std::int64_t value_steps = micro_kernel.steps_of(a.dv),
                     panel_bytes = micro_kernel.packed_bytes(kKeys);
  copy_rows(micro_kernel, value_rows, copies, value_steps);
  const auto write = in_pairs ? write_values<std::uint16_t> : write_values<std::uint32_t>;
  for (std::int64_t r = 0; r < end - first; ++r)
    write(copies + r * value_steps, a.dv, first - start + r, panel_bytes, values);
  // A GEMM multiplies values up to here by zeros, and dropped tokens may have left others there.
  const std::int64_t written = in_pairs ? (end - start + 1) / 2 : end - start,
                     read = micro_kernel.steps_of(end - start);
  for (std::int64_t panel = 0; panel < panels_of(a.dv); ++panel)
    std::memset(values + panel * panel_bytes + 4 * kPanelColumns * written, 0,
                static_cast<std::size_t>(4 * kPanelColumns * (read - written)));
}

/// One block of queries, which walks over the blocks of keys.
class ForwardBlock {
 public:
  ForwardBlock(const AttentionForwardArguments& a, const ForwardShape& shape,
               const ForwardWorkspace& workspace, std::int64_t part)
      : a_(a), shape_(shape), s_(workspace) {
    const std::int64_t head_block = part % shape.head_blocks, rest = part / shape.head_blocks;
    unit_ = rest / shape.query_blocks;
    // Blocks are ordered first, last, second, last but one … Under a causal mask two neighbours
    // together always have the same work.
    const std::int64_t folded = rest % shape.query_blocks,
                       query_block =
                           folded % 2 == 0 ? folded / 2 : shape.query_blocks - 1 - folded / 2;
    sample_ = unit_ / a.g;
    first_ = query_block * shape.positions;
    positions_ = std::min(shape.positions, a.sq - first_);
    first_head_ = unit_ % a.g * a.heads_per_group() + head_block * shape.heads;
    heads_ = std::min(shape.heads, a.heads_per_group() - head_block * shape.heads);
    rows_ = positions_ * heads_;
  }

  void run(const char* packed) {
    start();
    if (a_.packed.memory != nullptr && !shape_.shares_packed) {
      const Span blocks = blocks_to_pack(a_, shape_);
      for (std::int64_t block = blocks.begin; block < blocks.end; ++block)
        append_to_block(a_, shape_, unit_, block, s_.gathered);
    }
    for (std::int64_t block = shape_.keys.begin; block < shape_.keys.end; ++block) {
      const VisibleRange visible = visible_range(a_, sample_, first_, positions_, block);
      if (visible.empty()) continue;
      const char* keys = packed_block(block, packed);
      add(visible, block, keys, keys + shape_.key_bytes);
    }
    finish();
  }

 private:
  /// Returns the keys of a block, behind which its values lie.
  const char* packed_block(std::int64_t block, const char* packed) const {
    if (a_.packed.memory != nullptr) {
      char* const cached = cached_block(a_, shape_, unit_, block);
      if (a_.packed.type == KvCacheType::same) return cached;
      with_coded_block(a_, cached, [&](const auto& coded) {
        coded.unpack(std::min(kKeys, a_.sk - block * kKeys), s_.packed);
      });
      return s_.packed;
    }
    if (shape_.shares_packed)
      return packed +
             (unit_ * shape_.keys.size() + block - shape_.keys.begin) * shape_.block_bytes();
    pack_block(a_, shape_, unit_, block, s_.packed, s_.gathered);
    return s_.packed;
  }

  void start() {
    const std::int64_t steps = shape_.micro_kernel.steps_of(a_.d);
    for (std::int64_t h = 0; h < heads_; ++h)
      copy_rows(shape_.micro_kernel,
                rows_of(a_.q, a_.type, sample_, first_head_ + h, first_, positions_, a_.d),
                s_.queries + h * steps, heads_ * steps);
    std::memset(s_.out, 0, static_cast<std::size_t>(4 * rows_ * s_.out_stride));
    std::memset(s_.sums, 0, static_cast<std::size_t>(4 * rows_ * kLanes));
    for (std::int64_t r = 0; r < rows_; ++r) s_.top[r] = kMasked;
  }

  void add(const VisibleRange& visible, std::int64_t block, const char* keys, const char* values) {
    const MicroKernel& micro_kernel = shape_.micro_kernel;
    const std::int64_t first = visible.row_begin * heads_, count = visible.row_end * heads_ - first,
                       steps = micro_kernel.steps_of(a_.d);
    for (std::int64_t c = visible.panel_begin(); c < visible.panel_end(); c += kPanelColumns) {
      micro_kernel.multiply({.a = s_.queries + first * steps,
                             .row_stride = steps,
                             .step_stride = 1,
                             .panel = keys + c / kPanelColumns * micro_kernel.packed_bytes(a_.d),
                             .out = s_.scores + first * kKeys + c,
                             .out_stride = kKeys,
                             .rows = count,
                             .columns = kPanelColumns,
                             .steps = steps,
                             .accumulate = false});
    }
    const Scores scores(a_, sample_, block);
    for (std::int64_t r = first; r < first + count; ++r) join(scores, visible, block, r);
    const bool halves = micro_kernel.type == Type::bf16;
    const std::int64_t skipped = micro_kernel.steps_of(visible.panel_begin()),
                       row_steps = micro_kernel.steps_of(kKeys);
    const std::uint32_t* probabilities = halves ? reinterpret_cast<const std::uint32_t*>(s_.halves)
                                                : reinterpret_cast<const std::uint32_t*>(s_.scores);
    for (std::int64_t c = 0; c < a_.dv; c += kPanelColumns) {
      micro_kernel.multiply({.a = probabilities + first * row_steps + skipped,
                             .row_stride = row_steps,
                             .step_stride = 1,
                             .panel = values +
                                      c / kPanelColumns * micro_kernel.packed_bytes(kKeys) +
                                      4 * kPanelColumns * skipped,
                             .out = s_.out + first * s_.out_stride + c,
                             .out_stride = s_.out_stride,
                             .rows = count,
                             .columns = std::min(kPanelColumns, a_.dv - c),
                             .steps = micro_kernel.steps_of(visible.end) - skipped,
                             .accumulate = true});
    }
  }

  /// Turns a row of dot products into exp(score − largest so far) and adds them to the row's sum.
  /// When the largest score has grown, first rescales what earlier blocks left.
  void join(const Scores& scores, const VisibleRange& visible, std::int64_t block, std::int64_t r) {
    float* row = s_.scores + r * kKeys;
    const std::int64_t begin = visible.panel_begin(), end = visible.panel_end(),
                       i = first_ + r / heads_, h = first_head_ + r % heads_;
    const Span seen = scores.prepare(row, begin, end, i, h, visible.partial, nullptr);
    Vec16f largest = broadcast(kMasked);
    for (std::int64_t c = seen.begin; c < seen.end; c += kNumLanes)
      largest = larger(load_vec(row + c), largest);
    const float most = std::max(s_.top[r], horizontal_max(largest) * scores.factor()),
                shift = most == kMasked ? 0.0f : most;
    if (most > s_.top[r] && s_.top[r] != kMasked) shrink(r, exp2(broadcast(s_.top[r] - shift)));
    s_.top[r] = most;
    const Row where{row, s_.sums + r * kLanes, s_.halves + r * kKeys, seen.begin, seen.end};
    clear(where, begin, seen.begin);
    clear(where, seen.end, end);
    const std::uint32_t* draws =
        a_.has_dropout ? draws_.of(a_, sample_, h, i, block, seen.begin, seen.end) : nullptr;
    if (shape_.micro_kernel.type == Type::bf16) {
      draws == nullptr ? exponentiate<true, false>(where, scores.factor(), shift, draws)
                       : exponentiate<true, true>(where, scores.factor(), shift, draws);
    } else {
      draws == nullptr ? exponentiate<false, false>(where, scores.factor(), shift, draws)
                       : exponentiate<false, true>(where, scores.factor(), shift, draws);
    }
  }

  struct Row {
    float *scores, *sums;
    std::uint16_t* halves;
    std::int64_t begin, end;
  };

  template <bool kHalves, bool kDrops>
  void exponentiate(const Row& row, float factor, float shift, const std::uint32_t* draws) const {
    Vec16f sum = load_vec(row.sums);
    for (std::int64_t c = row.begin; c < row.end; c += kNumLanes) {
      // The multiplication is rounded before the subtraction, because the largest exponent was
      // rounded too. A fused one would leave its rounding error, which may be huge, as the
      // exponent.
      Vec16f p = exp2(load_vec(row.scores + c) * broadcast(factor) - broadcast(shift));
      sum = sum + p;
      if constexpr (kDrops) p = where_kept(draws + c - row.begin, a_.rule.threshold, p);
      if constexpr (kHalves) {
        store_operands(row.halves + c, p);
      } else {
        store_vec(row.scores + c, p);
      }
    }
    store_vec(row.sums, sum);
  }

  /// Sets the probabilities of masked columns.
  void clear(const Row& row, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t c = begin; c < end; c += kNumLanes) {
      if (shape_.micro_kernel.type == Type::bf16) {
        store_operands(row.halves + c, broadcast(0));
      } else {
        store_vec(row.scores + c, broadcast(0));
      }
    }
  }

  void shrink(std::int64_t r, Vec16f factor) {
    float *sums = s_.sums + r * kLanes, *out = s_.out + r * s_.out_stride;
    store_vec(sums, load_vec(sums) * factor);
    for (std::int64_t c = 0; c < s_.out_stride; c += kNumLanes)
      store_vec(out + c, load_vec(out + c) * factor);
  }

  void finish() {
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::int64_t i = first_ + r / heads_, h = first_head_ + r % heads_;
      double top = kLn2 * static_cast<double>(s_.top[r]),
             sum = static_cast<double>(horizontal_sum(load_vec(s_.sums + r * kLanes))),
             weight = a_.has_dropout ? a_.rule.scale : 1.0;
      const std::int64_t row = (sample_ * a_.n + h) * a_.sq + i;
      if (a_.top != nullptr) a_.top[row] = static_cast<float>(top);
      if (a_.sinks != nullptr) {
        const auto sink = static_cast<double>(a_.sinks[h]);
        const double most = std::max(top, sink), shrunk = ::exp(top - most);
        weight *= shrunk;
        sum = sum * shrunk + ::exp(sink - most);
        top = most;
      }
      const bool is_fully_masked = sum == 0;
      const float scale = is_fully_masked ? 0.0f : static_cast<float>(weight / sum);
      char* to =
          static_cast<char*>(a_.out) + ((i * a_.b + sample_) * a_.n + h) * a_.dv * size_of(a_.type);
      store_row(s_.out + r * s_.out_stride, scale, to, a_.type, a_.dv);
      a_.lse[row] = is_fully_masked ? kMasked : static_cast<float>(top + ::log(sum));
    }
  }

  const AttentionForwardArguments& a_;
  const ForwardShape& shape_;
  const ForwardWorkspace& s_;
  DropoutDraws draws_;
  std::int64_t unit_, sample_, first_, positions_, first_head_, heads_, rows_;
};

inline AttentionPlan forward_plan(const AttentionForwardArguments& a) {
  const ForwardShape shape(a);
  const std::int64_t blocks = shape.shares_packed ? a.b * a.g * blocks_to_pack(a, shape).size() : 0;
  return {.shared_bytes = a.packed.memory == nullptr ? blocks * shape.block_bytes() : 0,
          .workspace_bytes = ForwardWorkspace(a, shape, nullptr).bytes,
          .parts = {blocks, shape.parts(a)}};
}

inline void forward(const AttentionForwardArguments& a, int stage, std::int64_t begin,
                    std::int64_t end, void* shared, void* memory) {
  const ForwardShape shape(a);
  const ForwardWorkspace workspace(a, shape, memory);
  const MicroKernelScope scope(shape.micro_kernel);
  const Span blocks = blocks_to_pack(a, shape);
  auto* packed = static_cast<char*>(shared);
  for (std::int64_t part = begin; part < end; ++part) {
    if (stage == 1) {
      ForwardBlock(a, shape, workspace, part).run(packed);
      continue;
    }
    // Neighbouring units have their keys side by side.
    const std::int64_t unit = part % (a.b * a.g), index = part / (a.b * a.g),
                       block = blocks.begin + index;
    if (a.packed.memory != nullptr) {
      append_to_block(a, shape, unit, block, workspace.gathered);
    } else {
      pack_block(a, shape, unit, block,
                 packed + (unit * blocks.size() + index) * shape.block_bytes(), workspace.gathered);
    }
  }
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
