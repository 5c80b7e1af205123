// The backward pass of attention.
#pragma once

#include <array>
#include <cstring>

#include "kernels/cpu/attention_backward_memory.h"
#include "kernels/cpu/attention_scores.h"
#include "kernels/cpu/l2_prefetcher.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

class BackwardPart {
 public:
  BackwardPart(const AttentionBackwardArguments& a, const BackwardShape& shape,
               const BackwardShared& shared, const BackwardWorkspace& workspace, std::int64_t part)
      : a_(a),
        shape_(shape),
        micro_kernel_(shape.micro_kernel),
        shared_(shared),
        s_(workspace),
        pairs_(shape.micro_kernel.type == Type::bf16) {
    chunk_ = part % shape.chunks;
    const std::int64_t head = part / shape.chunks * shape.heads;  // counts over all samples
    sample_ = head / a.n;
    first_head_ = head % a.n;
    group_ = first_head_ / a.heads_per_group();
  }

  void run() {
    for (std::int64_t h = first_head_; h < first_head_ + shape_.heads; ++h) {
      started_ = 0;
      if (a_.distance_bias != nullptr)
        std::memset(distance_sums(h), 0, static_cast<std::size_t>(4 * a_.distance_stride));
      for (std::int64_t block = shape_.keys.begin; block < shape_.keys.end; ++block) {
        if (!shape_.has(chunk_, block)) continue;
        const std::int64_t kept = shape_.heads > 1 ? block - shape_.keys.begin : 0;
        keys_ = s_.panels + kept * (s_.key_bytes + s_.value_bytes + s_.depth_bytes);
        dk_ = s_.dk + kept * kKeys * shape_.q_stride;
        dv_ = s_.dv + kept * kKeys * shape_.v_stride;
        if (h == first_head_) start_keys(block);
        for (std::int64_t q = 0; q < shape_.query_blocks; ++q) add(h, q, block);
        if (h == first_head_ + shape_.heads - 1) finish_keys(h, block);
      }
      start_queries(h, shape_.query_blocks - 1);
      finish_head(h);
    }
  }

 private:
  /// Returns the part's sums of the gradients of a head's distance_bias.
  float* distance_sums(std::int64_t h) const {
    return shared_.distance_bias +
           ((sample_ * a_.n + h) * shape_.chunks + chunk_) * a_.distance_stride;
  }

  /// Starts the blocks of queries of a head up to number `last` that have not been started. They
  /// wait for the first block of keys that they see, so that with windows and chunks what they
  /// leave is still in the L2 cache.
  void start_queries(std::int64_t h, std::int64_t last) {
    for (; started_ <= last; ++started_) {
      const std::int64_t first = started_ * kBackwardQueries,
                         count = std::min(kBackwardQueries, a_.sq - first),
                         steps = micro_kernel_.steps_of(a_.d),
                         v_steps = micro_kernel_.steps_of(a_.dv);
      const Rows queries = rows_of(a_.q, a_.type, sample_, h, first, count, a_.d),
                 douts = rows_of(a_.dout, a_.type, sample_, h, first, count, a_.dv);
      pack_along(micro_kernel_,
                 copy_rows(micro_kernel_, queries, s_.queries + first * steps, steps),
                 kBackwardQueries, s_.query_panels + started_ * s_.query_bytes);
      pack_along(micro_kernel_,
                 copy_rows(micro_kernel_, douts, s_.douts + first * v_steps, v_steps),
                 kBackwardQueries, s_.dout_panels + started_ * s_.dout_bytes);
      for (std::int64_t i = first; i < first + count; ++i) {
        const float lse = a_.lse[(sample_ * a_.n + h) * a_.sq + i];
        s_.lse[i] = lse == kMasked ? -kMasked : static_cast<float>(lse * kLog2E);
      }
      with_type(a_.type, [&]<class T>(T) {
        if constexpr (!std::is_same_v<T, double>) find_deltas<T>(h, first, first + count);
      });
      std::memset(s_.dq + first * shape_.q_stride, 0,
                  static_cast<std::size_t>(4 * count * shape_.q_stride));
    }
  }

  /// delta = Σ over channels of dout·out, in sixteen lanes folded pairwise.
  template <class T>
  void find_deltas(std::int64_t h, std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kAhead = 16;
    const Rows outs{static_cast<const T*>(a_.out) + (sample_ * a_.n + h) * a_.dv, a_.type,
                    a_.b * a_.n * a_.dv, a_.sq, a_.dv};
    const Rows douts = rows_of(a_.dout, a_.type, sample_, h, 0, a_.sq, a_.dv);
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + kAhead < a_.sq) prefetch_row(outs, i + kAhead);
      const T *out = static_cast<const T*>(outs.data) + i * outs.stride,
              *dout = static_cast<const T*>(douts.data) + i * douts.stride;
      Vec16f sums = broadcast(0);
      for (std::int64_t c = 0; c < a_.dv; c += kNumLanes)
        sums = sums + load_partial(dout + c, a_.dv - c, 0) * load_partial(out + c, a_.dv - c, 0);
      s_.delta[i] = horizontal_sum(sums);
    }
  }

  void start_keys(std::int64_t block) {
    const Rows keys =
        block_rows(a_, micro_kernel_, a_.k, a_.d, sample_, group_, block, s_.gathered, true);
    pack_across(micro_kernel_, keys, keys_);
    pack_along(micro_kernel_, keys, kKeys, keys_ + s_.key_bytes + s_.value_bytes);
    pack_across(
        micro_kernel_,
        block_rows(a_, micro_kernel_, a_.v, a_.dv, sample_, group_, block, s_.gathered, true),
        keys_ + s_.key_bytes);
    std::memset(dk_, 0, static_cast<std::size_t>(4 * kKeys * shape_.q_stride));
    std::memset(dv_, 0, static_cast<std::size_t>(4 * kKeys * shape_.v_stride));
  }

  /// Adds what a block of queries and a block of keys contribute to each other's gradients.
  void add(std::int64_t h, std::int64_t q, std::int64_t block) {
    const std::int64_t first = q * kBackwardQueries,
                       queries = std::min(kBackwardQueries, a_.sq - first);
    VisibleRange visible = visible_range(a_, sample_, first, queries, block);
    if (visible.empty()) return;
    start_queries(h, q);
    if (pairs_) {  // rounds to whole steps of the micro-kernel
      const std::int64_t step = 2 * micro_kernel_.multiple;
      const Span whole{visible.row_begin / step * step,
                       std::min(queries, blocks_of(visible.row_end, step) * step)};
      visible.partial = visible.partial || whole.size() != visible.row_end - visible.row_begin;
      visible.row_begin = whole.begin;
      visible.row_end = whole.end;
    }
    const std::int64_t row = first + visible.row_begin, rows = visible.row_end - visible.row_begin;
    multiply_across(s_.queries, row, rows, keys_, a_.d, visible, s_.scores);
    multiply_across(s_.douts, row, rows, keys_ + s_.key_bytes, a_.dv, visible, s_.dscores);
    const Scores scores(a_, sample_, block);
    std::array<L2Prefetcher, 5> next = following(q);
    for (L2Prefetcher& part : next) part.divide_into(rows);
    for (std::int64_t r = visible.row_begin; r < visible.row_end; ++r) {
      for (L2Prefetcher& part : next) part.prefetch_share();
      differentiate(scores, visible, h, first, block, r);
    }
    if (pairs_) turn_to_steps(visible);
    const std::int64_t depth = micro_kernel_.steps_of(visible.row_begin);
    multiply_transposed(
        pairs_ ? s_.probability_steps : reinterpret_cast<const std::uint32_t*>(s_.scores), visible,
        s_.dout_panels + q * s_.dout_bytes + 4 * kPanelColumns * depth, a_.dv, dv_,
        shape_.v_stride);
    multiply_transposed(
        pairs_ ? s_.dscore_steps : reinterpret_cast<const std::uint32_t*>(s_.dscores), visible,
        s_.query_panels + q * s_.query_bytes + 4 * kPanelColumns * depth, a_.d, dk_,
        shape_.q_stride);
    add_to_queries(visible, row, rows);
  }

  /// Prefetches what add() reads of the next block of queries.
  std::array<L2Prefetcher, 5> following(std::int64_t q) const {
    const std::int64_t first = (q + 1) * kBackwardQueries,
                       count = std::min(kBackwardQueries, a_.sq - first);
    if (count <= 0) return {};
    const std::int64_t steps = micro_kernel_.steps_of(a_.d),
                       v_steps = micro_kernel_.steps_of(a_.dv);
    return {L2Prefetcher(s_.queries + first * steps, 1, 0, 4 * count * steps),
            L2Prefetcher(s_.douts + first * v_steps, 1, 0, 4 * count * v_steps),
            L2Prefetcher(s_.query_panels + (q + 1) * s_.query_bytes, 1, 0, s_.query_bytes),
            L2Prefetcher(s_.dout_panels + (q + 1) * s_.dout_bytes, 1, 0, s_.dout_bytes),
            L2Prefetcher(s_.dq + first * shape_.q_stride, 1, 0, 4 * count * shape_.q_stride)};
  }

  /// to[r, c] = rows·panels for the rectangle `visible`.
  void multiply_across(const std::uint32_t* from, std::int64_t row, std::int64_t rows,
                       const char* panels, std::int64_t depth, const VisibleRange& visible,
                       float* to) const {
    const std::int64_t steps = micro_kernel_.steps_of(depth);
    for (std::int64_t c = visible.panel_begin(); c < visible.panel_end(); c += kPanelColumns) {
      micro_kernel_.multiply(
          {.a = from + row * steps,
           .row_stride = steps,
           .step_stride = 1,
           .panel = panels + c / kPanelColumns * micro_kernel_.packed_bytes(depth),
           .out = to + visible.row_begin * kKeys + c,
           .out_stride = kKeys,
           .rows = rows,
           .columns = kPanelColumns,
           .steps = steps,
           .accumulate = false});
    }
  }

  /// Turns scores into the probabilities that multiply v, and their gradients into p·(dp −
  /// delta)·(slope of the softcap).
  void differentiate(const Scores& scores, const VisibleRange& visible, std::int64_t h,
                     std::int64_t first, std::int64_t block, std::int64_t r) {
    const std::int64_t i = first + r, panel_begin = visible.panel_begin(),
                       panel_end = visible.panel_end();
    float* const dots = s_.scores + r * kKeys;
    const auto [begin, end] =
        scores.prepare(dots, panel_begin, panel_end, i, h, visible.partial, s_.slopes);
    const Row row{dots,
                  s_.dscores + r * kKeys,
                  s_.probability_rows + r * kKeys,
                  s_.dscore_rows + r * kKeys,
                  begin,
                  end};
    clear(row, panel_begin, begin);
    clear(row, end, panel_end);
    const float lse = s_.lse[i], delta = s_.delta[i];
    if (!a_.has_dropout && a_.distance_bias == nullptr) {
      if (scores.caps())
        pairs_ ? differentiate_plain<true, true>(row, scores.factor(), lse, delta)
               : differentiate_plain<false, true>(row, scores.factor(), lse, delta);
      else
        pairs_ ? differentiate_plain<true, false>(row, scores.factor(), lse, delta)
               : differentiate_plain<false, false>(row, scores.factor(), lse, delta);
      return;
    }
    const std::uint32_t* draws =
        a_.has_dropout ? draws_.of(a_, sample_, h, i, block, begin, end) : nullptr;
    float* const sums =
        a_.distance_bias != nullptr ? distance_sums(h) + distance_column(a_, block, i) : nullptr;
    const Vec16f scale = broadcast(static_cast<float>(a_.rule.scale));
    for (std::int64_t c = begin; c < end; c += kNumLanes) {
      const Vec16f keep =
          draws != nullptr ? where_kept(draws + c - begin, a_.rule.threshold, scale) : broadcast(1);
      const Vec16f whole =
          probability(load_vec(row.p + c) * broadcast(scores.factor()), broadcast(lse));
      const Vec16f slope = scores.caps() ? load_vec(s_.slopes + c) : broadcast(1);
      const Vec16f p = whole * keep,
                   dscore = whole * (load_vec(row.dp + c) * keep - broadcast(delta)),
                   dp = dscore * slope;
      if (sums != nullptr) store_vec(sums + c, load_vec(sums + c) + dscore);
      pairs_ ? store_columns<true>(row, c, p, dp) : store_columns<false>(row, c, p, dp);
    }
  }

  struct Row {
    float *p, *dp;
    std::uint16_t *p_half, *dp_half;
    std::int64_t begin, end;
  };

  /// Stores sixteen columns of a row as the micro-kernel reads them.
  template <bool kHalves>
  static void store_columns(const Row& row, std::int64_t c, Vec16f p, Vec16f dp) {
    if constexpr (kHalves) {
      store_operands(row.p_half + c, p);
      store_operands(row.dp_half + c, dp);
    } else {
      store_vec(row.p + c, p);
      store_vec(row.dp + c, dp);
    }
  }

  void clear(const Row& row, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t c = begin; c < end; c += kNumLanes)
      pairs_ ? store_columns<true>(row, c, broadcast(0), broadcast(0))
             : store_columns<false>(row, c, broadcast(0), broadcast(0));
  }

  template <bool kHalves, bool kCaps>
  void differentiate_plain(const Row& row, float factor, float lse, float delta) const {
    for (std::int64_t c = row.begin; c < row.end; c += kNumLanes) {
      const Vec16f p = probability(load_vec(row.p + c) * broadcast(factor), broadcast(lse));
      Vec16f dp = p * (load_vec(row.dp + c) - broadcast(delta));
      if constexpr (kCaps) dp = dp * load_vec(s_.slopes + c);
      store_columns<kHalves>(row, c, p, dp);
    }
  }

  /// Transposes bf16 rows for GEMMs whose depth is the queries.
  void turn_to_steps(const VisibleRange& visible) const {
    if (micro_kernel_.needs_packed_rows) {
      turn_to_lines(s_.probability_rows, visible, s_.probability_steps);
      turn_to_lines(s_.dscore_rows, visible, s_.dscore_steps);
      return;
    }
    const std::int64_t begin = visible.panel_begin(), end = visible.panel_end();
    for (std::int64_t r = visible.row_begin; r < visible.row_end; r += 2) {
      const bool alone = r + 1 == visible.row_end;
      pair_rows(s_.probability_rows + r * kKeys, alone, begin, end,
                s_.probability_steps + r / 2 * kKeys);
      pair_rows(s_.dscore_rows + r * kKeys, alone, begin, end, s_.dscore_steps + r / 2 * kKeys);
    }
  }

  void turn_to_lines(const std::uint16_t* rows, const VisibleRange& visible,
                     std::uint32_t* lines) const {
    const std::int64_t begin = visible.panel_begin(),
                       stride = micro_kernel_.steps_of(kBackwardQueries);
    micro_kernel_.copy({.from = rows + visible.row_begin * kKeys + begin,
                        .type = Type::bf16,
                        .depth_stride = kKeys,
                        .cross_stride = 1,
                        .depth = visible.row_end - visible.row_begin,
                        .count = visible.panel_end() - begin,
                        .to = lines + begin * stride,
                        .to_stride = stride});
  }

  static void pair_rows(const std::uint16_t* __restrict first, bool alone, std::int64_t begin,
                        std::int64_t end, std::uint32_t* __restrict to) {
    const std::uint16_t* second = first + kKeys;
    if (alone) {
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) to[c] = first[c];
    } else {
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) to[c] = first[c] | std::uint32_t{second[c]} << 16;
    }
  }

  /// sums[key, channel] += Σ over queries of from[query, key]·panels[query, channel].
  void multiply_transposed(const std::uint32_t* from, const VisibleRange& visible,
                           const char* panels, std::int64_t channels, float* sums,
                           std::int64_t stride) const {
    const std::int64_t key = visible.panel_begin(),
                       depth = micro_kernel_.steps_of(visible.row_begin);
    const bool lines = micro_kernel_.needs_packed_rows;
    const std::int64_t line = micro_kernel_.steps_of(kBackwardQueries);
    for (std::int64_t c = 0; c < channels; c += kPanelColumns) {
      micro_kernel_.multiply(
          {.a = lines ? from + key * line : from + depth * kKeys + key,
           .row_stride = lines ? line : 1,
           .step_stride = lines ? 1 : kKeys,
           .panel = panels + c / kPanelColumns * micro_kernel_.packed_bytes(kBackwardQueries),
           .out = sums + key * stride + c,
           .out_stride = stride,
           .rows = visible.end - key,
           .columns = std::min(kPanelColumns, channels - c),
           .steps = micro_kernel_.steps_of(visible.row_end) - depth,
           .accumulate = true});
    }
  }

  void add_to_queries(const VisibleRange& visible, std::int64_t row, std::int64_t rows) const {
    const std::int64_t row_steps = micro_kernel_.steps_of(kKeys),
                       skipped = micro_kernel_.steps_of(visible.panel_begin());
    const std::uint32_t* from = pairs_ ? reinterpret_cast<const std::uint32_t*>(s_.dscore_rows)
                                       : reinterpret_cast<const std::uint32_t*>(s_.dscores);
    const char* panels = keys_ + s_.key_bytes + s_.value_bytes + 4 * kPanelColumns * skipped;
    for (std::int64_t c = 0; c < a_.d; c += kPanelColumns) {
      micro_kernel_.multiply(
          {.a = from + visible.row_begin * row_steps + skipped,
           .row_stride = row_steps,
           .step_stride = 1,
           .panel = panels + c / kPanelColumns * micro_kernel_.packed_bytes(kKeys),
           .out = s_.dq + row * shape_.q_stride + c,
           .out_stride = shape_.q_stride,
           .rows = rows,
           .columns = std::min(kPanelColumns, a_.d - c),
           .steps = micro_kernel_.steps_of(visible.end) - skipped,
           .accumulate = true});
    }
  }

  void finish_keys(std::int64_t h, std::int64_t block) const {
    const std::int64_t start = block * kKeys, first = std::max(start, a_.k_start),
                       end = std::min(start + kKeys, a_.k_start + a_.sk);
    for (std::int64_t position = first; position < end; ++position) {
      const float *dk = dk_ + (position - start) * shape_.q_stride,
                  *dv = dv_ + (position - start) * shape_.v_stride;
      const std::int64_t key = position - a_.k_start;
      if (shape_.splits_heads) {
        const std::int64_t row = (sample_ * a_.n + h) * a_.sk + key;
        std::memcpy(shared_.dk + row * a_.d, dk, static_cast<std::size_t>(4 * a_.d));
        std::memcpy(shared_.dv + row * a_.dv, dv, static_cast<std::size_t>(4 * a_.dv));
      } else {
        store_row(dk, static_cast<float>(a_.scale),
                  gradient_row(a_, a_.dk, a_.dk_strides, key, sample_, group_), a_.type, a_.d);
        store_row(dv, 1.0f, gradient_row(a_, a_.dvalue, a_.dvalue_strides, key, sample_, group_),
                  a_.type, a_.dv);
      }
    }
  }

  void finish_head(std::int64_t h) const {
    for (std::int64_t i = 0; i < a_.sq; ++i) {
      const float* dq = s_.dq + i * shape_.q_stride;
      if (shape_.chunks > 1) {
        std::memcpy(
            shared_.dq + (((sample_ * a_.n + h) * shape_.chunks + chunk_) * a_.sq + i) * a_.d, dq,
            static_cast<std::size_t>(4 * a_.d));
      } else {
        store_row(dq, static_cast<float>(a_.scale),
                  gradient_row(a_, a_.dq, a_.dq_strides, i, sample_, h), a_.type, a_.d);
      }
    }
  }

 public:
  static void* gradient_row(const AttentionArguments& a, void* data,
                            const std::array<std::int64_t, 3>& strides, std::int64_t position,
                            std::int64_t sample, std::int64_t head) {
    return static_cast<char*>(data) +
           (position * strides[0] + sample * strides[1] + head * strides[2]) * size_of(a.type);
  }

 private:
  const AttentionBackwardArguments& a_;
  const BackwardShape& shape_;
  const MicroKernel& micro_kernel_;
  const BackwardShared& shared_;
  const BackwardWorkspace& s_;
  bool pairs_;
  DropoutDraws draws_;
  std::int64_t chunk_, sample_, first_head_, group_;
  std::int64_t started_;  ///< blocks of queries of the current head that have been started
  char* keys_;            ///< panels of the current block of keys
  float *dk_, *dv_;       ///< sums of the current block of keys
};

/// Adds `count` partial rows, which lie `step` apart, to the first one.
inline void add_rows(float* rows, std::int64_t count, std::int64_t step, std::int64_t channels) {
  for (std::int64_t r = 1; r < count; ++r) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) rows[c] += rows[r * step + c];
  }
}

/// Adds up the partial gradients of one position, chunks and heads in ascending order. When dq has
/// parts, its positions come before those of dk and dv. The heads of distance_bias come last.
inline void reduce_parts(const AttentionBackwardArguments& a, const BackwardShape& shape,
                         const BackwardShared& shared, std::int64_t part) {
  const auto scale = static_cast<float>(a.scale);
  if (shape.chunks > 1 && part < a.sq) {
    for (std::int64_t head = 0; head < a.b * a.n; ++head) {
      float* rows = shared.dq + (head * shape.chunks * a.sq + part) * a.d;
      add_rows(rows, shape.chunks, a.sq * a.d, a.d);
      store_row(rows, scale,
                BackwardPart::gradient_row(a, a.dq, a.dq_strides, part, head / a.n, head % a.n),
                a.type, a.d);
    }
    return;
  }
  const std::int64_t key = part - (shape.chunks > 1 ? a.sq : 0), r = a.heads_per_group(),
                     head = key - (shape.splits_heads ? a.sk : 0);
  if (a.distance_bias != nullptr && head >= 0) {
    float* to = a.ddistance_bias + head * a.distance_stride;
    std::memset(to, 0, static_cast<std::size_t>(4 * a.distance_stride));
    for (std::int64_t sample = 0; sample < a.b; ++sample) {
      float* from = shared.distance_bias + (sample * a.n + head) * shape.chunks * a.distance_stride;
      add_rows(from, shape.chunks, a.distance_stride, a.distance_stride);
#pragma omp simd
      for (std::int64_t c = 0; c < a.distance_stride; ++c) to[c] += from[c];
    }
    return;
  }
  for (std::int64_t group = 0; group < a.b * a.g; ++group) {
    float *dk = shared.dk + (group * r * a.sk + key) * a.d,
          *dv = shared.dv + (group * r * a.sk + key) * a.dv;
    add_rows(dk, r, a.sk * a.d, a.d);
    add_rows(dv, r, a.sk * a.dv, a.dv);
    store_row(dk, scale,
              BackwardPart::gradient_row(a, a.dk, a.dk_strides, key, group / a.g, group % a.g),
              a.type, a.d);
    store_row(
        dv, 1.0f,
        BackwardPart::gradient_row(a, a.dvalue, a.dvalue_strides, key, group / a.g, group % a.g),
        a.type, a.dv);
  }
}

inline AttentionPlan backward_plan(const AttentionBackwardArguments& a) {
  const BackwardShape shape(a);
  return {
      .shared_bytes = BackwardShared(a, shape, nullptr).bytes,
      .workspace_bytes = BackwardWorkspace(a, shape, nullptr).bytes,
      .parts = {shape.parts(a), (shape.chunks > 1 ? a.sq : 0) + (shape.splits_heads ? a.sk : 0) +
                                    (a.distance_bias != nullptr ? a.n : 0)}};
}

inline void backward(const AttentionBackwardArguments& a, int stage, std::int64_t begin,
                     std::int64_t end, void* shared_memory, void* memory) {
  const BackwardShape shape(a);
  const BackwardShared shared(a, shape, shared_memory);
  if (stage == 1) {
    for (std::int64_t part = begin; part < end; ++part) reduce_parts(a, shape, shared, part);
    return;
  }
  const BackwardWorkspace workspace(a, shape, memory);
  const MicroKernelScope scope(shape.micro_kernel);
  for (std::int64_t part = begin; part < end; ++part)
    BackwardPart(a, shape, shared, workspace, part).run();
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
