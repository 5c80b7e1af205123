// The backward pass, compiled once per instruction set inside the namespace MEGATRON_KERNEL_ISA.
#pragma once

#include <array>
#include <cstring>

#include "kernels/cpu/attention_backward_memory_impl.h"
#include "kernels/cpu/attention_scores_impl.h"
#include "kernels/cpu/fetch_ahead.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

class BackwardPart {
 public:
  BackwardPart(const AttentionBackwardArguments& a, const BackwardShape& shape, const BackwardShared& shared, const BackwardScratch& scratch,
               std::int64_t part)
      : a_(a), shape_(shape), product_(shape.product), shared_(shared), s_(scratch), pairs_(shape.product.type == Type::bf16) {
    chunk_ = part % shape.chunks;
    const std::int64_t head = part / shape.chunks * shape.heads;  // over samples
    sample_ = head / a.n;
    first_head_ = head % a.n;
    group_ = first_head_ / a.heads_per_group();
  }

  void run() {
    for (std::int64_t h = first_head_; h < first_head_ + shape_.heads; ++h) {
      start_head(h);
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
      finish_head(h);
    }
  }

 private:
  void start_head(std::int64_t h) {
    for (std::int64_t q = 0; q < shape_.query_blocks; ++q) {
      const std::int64_t first = q * kBackwardQueries, count = std::min(kBackwardQueries, a_.sq - first), steps = product_.steps_of(a_.d),
                         v_steps = product_.steps_of(a_.dv);
      const Rows queries = rows_of(a_.q, a_.type, sample_, h, first, count, a_.d), douts = rows_of(a_.dout, a_.type, sample_, h, first, count, a_.dv);
      pack_along(product_, copy_rows(product_, queries, s_.queries + first * steps, steps), kBackwardQueries, s_.query_panels + q * s_.query_bytes);
      pack_along(product_, copy_rows(product_, douts, s_.douts + first * v_steps, v_steps), kBackwardQueries, s_.dout_panels + q * s_.dout_bytes);
    }
    for (std::int64_t i = 0; i < a_.sq; ++i) {
      const float lse = a_.lse[(sample_ * a_.n + h) * a_.sq + i];
      s_.lse[i] = lse == kHidden ? -kHidden : static_cast<float>(lse * kLog2E);
    }
    with_type(a_.type, [&]<class T>(T) { find_deltas<T>(h); });
    std::memset(s_.dq, 0, static_cast<std::size_t>(4 * a_.sq * shape_.q_stride));
  }

  /// Σ over channels of dout·out in kLanes lanes, folded pairwise.
  template <class T>
  void find_deltas(std::int64_t h) {
    constexpr std::int64_t kAhead = 16;
    const Rows outs{static_cast<const T*>(a_.out) + (sample_ * a_.n + h) * a_.dv, a_.type, a_.b * a_.n * a_.dv, a_.sq, a_.dv};
    const Rows douts = rows_of(a_.dout, a_.type, sample_, h, 0, a_.sq, a_.dv);
    for (std::int64_t i = 0; i < a_.sq; ++i) {
      if (i + kAhead < a_.sq) fetch_row(outs, i + kAhead);
      const T *out = static_cast<const T*>(outs.data) + i * outs.stride, *dout = static_cast<const T*>(douts.data) + i * douts.stride;
      float lanes[kLanes] = {};
      std::int64_t c = 0;
      for (; c + kLanes <= a_.dv; c += kLanes) {
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<float>(load(dout[c + lane]) * load(out[c + lane]));
      }
      for (int lane = 0; c + lane < a_.dv; ++lane) lanes[lane] += static_cast<float>(load(dout[c + lane]) * load(out[c + lane]));
      for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      }
      s_.delta[i] = lanes[0];
    }
  }

  void start_keys(std::int64_t block) {
    const Rows keys = block_rows(a_, product_, a_.k, a_.d, sample_, group_, block, s_.gathered, true);
    pack_across(product_, keys, keys_);
    pack_along(product_, keys, kKeys, keys_ + s_.key_bytes + s_.value_bytes);
    pack_across(product_, block_rows(a_, product_, a_.v, a_.dv, sample_, group_, block, s_.gathered, true), keys_ + s_.key_bytes);
    std::memset(dk_, 0, static_cast<std::size_t>(4 * kKeys * shape_.q_stride));
    std::memset(dv_, 0, static_cast<std::size_t>(4 * kKeys * shape_.v_stride));
  }

  /// What a block of queries and a block of keys give each other.
  void add(std::int64_t h, std::int64_t q, std::int64_t block) {
    const std::int64_t first = q * kBackwardQueries, queries = std::min(kBackwardQueries, a_.sq - first);
    Sight sight = sight_of(a_, sample_, first, queries, block);
    if (sight.empty()) return;
    if (pairs_) {  // whole steps of the product
      const std::int64_t step = 2 * product_.multiple;
      const Span whole{sight.row_begin / step * step, std::min(queries, blocks_of(sight.row_end, step) * step)};
      sight.partial = sight.partial || whole.size() != sight.row_end - sight.row_begin;
      sight.row_begin = whole.begin;
      sight.row_end = whole.end;
    }
    const std::int64_t row = first + sight.row_begin, rows = sight.row_end - sight.row_begin;
    multiply_across(s_.queries, row, rows, keys_, a_.d, sight, s_.scores);
    multiply_across(s_.douts, row, rows, keys_ + s_.key_bytes, a_.dv, sight, s_.dscores);
    const Scores scores(a_, sample_, block);
    std::array<FetchAhead, 5> next = following(q);
    for (FetchAhead& part : next) part.share_among(rows);
    for (std::int64_t r = sight.row_begin; r < sight.row_end; ++r) {
      for (FetchAhead& part : next) part.fetch_share();
      differentiate(scores, sight, h, first, block, r);
    }
    if (pairs_) turn_to_steps(sight);
    const std::int64_t depth = product_.steps_of(sight.row_begin);
    multiply_transposed(pairs_ ? s_.probability_steps : reinterpret_cast<const std::uint32_t*>(s_.scores), sight,
                        s_.dout_panels + q * s_.dout_bytes + 4 * kPanelColumns * depth, a_.dv, dv_, shape_.v_stride);
    multiply_transposed(pairs_ ? s_.dscore_steps : reinterpret_cast<const std::uint32_t*>(s_.dscores), sight,
                        s_.query_panels + q * s_.query_bytes + 4 * kPanelColumns * depth, a_.d, dk_, shape_.q_stride);
    add_to_queries(sight, row, rows);
  }

  /// What add() reads of the next block of queries.
  std::array<FetchAhead, 5> following(std::int64_t q) const {
    const std::int64_t first = (q + 1) * kBackwardQueries, count = std::min(kBackwardQueries, a_.sq - first);
    if (count <= 0) return {};
    const std::int64_t steps = product_.steps_of(a_.d), v_steps = product_.steps_of(a_.dv);
    return {FetchAhead(s_.queries + first * steps, 1, 0, 4 * count * steps), FetchAhead(s_.douts + first * v_steps, 1, 0, 4 * count * v_steps),
            FetchAhead(s_.query_panels + (q + 1) * s_.query_bytes, 1, 0, s_.query_bytes),
            FetchAhead(s_.dout_panels + (q + 1) * s_.dout_bytes, 1, 0, s_.dout_bytes),
            FetchAhead(s_.dq + first * shape_.q_stride, 1, 0, 4 * count * shape_.q_stride)};
  }

  /// to[r, c] = rows·panels for the rectangle of `sight`.
  void multiply_across(const std::uint32_t* from, std::int64_t row, std::int64_t rows, const char* panels, std::int64_t depth, const Sight& sight,
                       float* to) const {
    const std::int64_t steps = product_.steps_of(depth);
    for (std::int64_t c = sight.panel_begin(); c < sight.panel_end(); c += kPanelColumns) {
      product_.multiply({.a = from + row * steps,
                         .row_stride = steps,
                         .step_stride = 1,
                         .panel = panels + c / kPanelColumns * product_.packed_bytes(depth),
                         .out = to + sight.row_begin * kKeys + c,
                         .out_stride = kKeys,
                         .rows = rows,
                         .columns = kPanelColumns,
                         .steps = steps,
                         .accumulate = false});
    }
  }

  /// Scores become probabilities as they multiply v, their gradients p·(dp − delta)·(slope of the softcap).
  void differentiate(const Scores& scores, const Sight& sight, std::int64_t h, std::int64_t first, std::int64_t block, std::int64_t r) {
    const std::int64_t begin = sight.panel_begin(), end = sight.panel_end(), i = first + r;
    const Row row{s_.scores + r * kKeys, s_.dscores + r * kKeys, s_.probability_rows + r * kKeys, s_.dscore_rows + r * kKeys, begin, end};
    scores.prepare(row.p, begin, end, i, h, sight.partial, s_.slopes);
    const float lse = s_.lse[i], delta = s_.delta[i];
    if (!a_.drops && !scores.caps()) {
      pairs_ ? differentiate_plain<true>(row, scores.factor(), lse, delta) : differentiate_plain<false>(row, scores.factor(), lse, delta);
      return;
    }
    const std::uint32_t* draws = a_.drops ? draws_.of(a_, sample_, h, i, block, begin, end) : nullptr;
    const Lanes scale = all(static_cast<float>(a_.rule.scale));
    for (std::int64_t c = begin; c < end; c += kNumLanes) {
      const Lanes keep = draws == nullptr ? all(1) : where_kept(draws + c - begin, a_.rule.threshold, scale);
      const Lanes whole = probability(load_lanes(row.p + c) * all(scores.factor()), all(lse));
      const Lanes slope = scores.caps() ? load_lanes(s_.slopes + c) : all(1);
      const Lanes p = whole * keep, dp = whole * (load_lanes(row.dp + c) * keep - all(delta)) * slope;
      pairs_ ? store_columns<true>(row, c, p, dp) : store_columns<false>(row, c, p, dp);
    }
  }

  struct Row {
    float *p, *dp;
    std::uint16_t *p_half, *dp_half;
    std::int64_t begin, end;
  };

  /// Sixteen columns of a row, as products take them.
  template <bool kHalves>
  static void store_columns(const Row& row, std::int64_t c, Lanes p, Lanes dp) {
    if constexpr (kHalves) {
      store_operands(row.p_half + c, p);
      store_operands(row.dp_half + c, dp);
    } else {
      store_lanes(row.p + c, p);
      store_lanes(row.dp + c, dp);
    }
  }

  template <bool kHalves>
  static void differentiate_plain(const Row& row, float factor, float lse, float delta) {
    for (std::int64_t c = row.begin; c < row.end; c += kNumLanes) {
      const Lanes p = probability(load_lanes(row.p + c) * all(factor), all(lse));
      store_columns<kHalves>(row, c, p, p * (load_lanes(row.dp + c) - all(delta)));
    }
  }

  /// Rows of bf16 as products take them whose depth is the queries.
  void turn_to_steps(const Sight& sight) const {
    if (product_.reads_lines) {
      turn_to_lines(s_.probability_rows, sight, s_.probability_steps);
      turn_to_lines(s_.dscore_rows, sight, s_.dscore_steps);
      return;
    }
    const std::int64_t begin = sight.panel_begin(), end = sight.panel_end();
    for (std::int64_t r = sight.row_begin; r < sight.row_end; r += 2) {
      const bool alone = r + 1 == sight.row_end;
      pair_rows(s_.probability_rows + r * kKeys, alone, begin, end, s_.probability_steps + r / 2 * kKeys);
      pair_rows(s_.dscore_rows + r * kKeys, alone, begin, end, s_.dscore_steps + r / 2 * kKeys);
    }
  }

  void turn_to_lines(const std::uint16_t* rows, const Sight& sight, std::uint32_t* lines) const {
    const std::int64_t begin = sight.panel_begin(), stride = product_.steps_of(kBackwardQueries);
    product_.copy({.from = rows + sight.row_begin * kKeys + begin,
                   .type = Type::bf16,
                   .depth_stride = kKeys,
                   .cross_stride = 1,
                   .depth = sight.row_end - sight.row_begin,
                   .count = sight.panel_end() - begin,
                   .to = lines + begin * stride,
                   .to_stride = stride});
  }

  static void pair_rows(const std::uint16_t* __restrict first, bool alone, std::int64_t begin, std::int64_t end, std::uint32_t* __restrict to) {
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
  void multiply_transposed(const std::uint32_t* from, const Sight& sight, const char* panels, std::int64_t channels, float* sums,
                           std::int64_t stride) const {
    const std::int64_t key = sight.panel_begin(), depth = product_.steps_of(sight.row_begin);
    const bool lines = product_.reads_lines;
    const std::int64_t line = product_.steps_of(kBackwardQueries);
    for (std::int64_t c = 0; c < channels; c += kPanelColumns) {
      product_.multiply({.a = lines ? from + key * line : from + depth * kKeys + key,
                         .row_stride = lines ? line : 1,
                         .step_stride = lines ? 1 : kKeys,
                         .panel = panels + c / kPanelColumns * product_.packed_bytes(kBackwardQueries),
                         .out = sums + key * stride + c,
                         .out_stride = stride,
                         .rows = sight.end - key,
                         .columns = std::min(kPanelColumns, channels - c),
                         .steps = product_.steps_of(sight.row_end) - depth,
                         .accumulate = true});
    }
  }

  void add_to_queries(const Sight& sight, std::int64_t row, std::int64_t rows) const {
    const std::int64_t row_steps = product_.steps_of(kKeys), skipped = product_.steps_of(sight.panel_begin());
    const std::uint32_t* from = pairs_ ? reinterpret_cast<const std::uint32_t*>(s_.dscore_rows) : reinterpret_cast<const std::uint32_t*>(s_.dscores);
    const char* panels = keys_ + s_.key_bytes + s_.value_bytes + 4 * kPanelColumns * skipped;
    for (std::int64_t c = 0; c < a_.d; c += kPanelColumns) {
      product_.multiply({.a = from + sight.row_begin * row_steps + skipped,
                         .row_stride = row_steps,
                         .step_stride = 1,
                         .panel = panels + c / kPanelColumns * product_.packed_bytes(kKeys),
                         .out = s_.dq + row * shape_.q_stride + c,
                         .out_stride = shape_.q_stride,
                         .rows = rows,
                         .columns = std::min(kPanelColumns, a_.d - c),
                         .steps = product_.steps_of(sight.end) - skipped,
                         .accumulate = true});
    }
  }

  void finish_keys(std::int64_t h, std::int64_t block) const {
    const std::int64_t start = block * kKeys, first = std::max(start, a_.k_start), end = std::min(start + kKeys, a_.k_start + a_.sk);
    for (std::int64_t position = first; position < end; ++position) {
      const float *dk = dk_ + (position - start) * shape_.q_stride, *dv = dv_ + (position - start) * shape_.v_stride;
      const std::int64_t key = position - a_.k_start;
      if (shape_.splits_heads) {
        const std::int64_t row = (sample_ * a_.n + h) * a_.sk + key;
        std::memcpy(shared_.dk + row * a_.d, dk, static_cast<std::size_t>(4 * a_.d));
        std::memcpy(shared_.dv + row * a_.dv, dv, static_cast<std::size_t>(4 * a_.dv));
      } else {
        store_row(dk, static_cast<float>(a_.scale), gradient_row(a_, a_.dk, a_.dk_strides, key, sample_, group_), a_.type, a_.d);
        store_row(dv, 1.0f, gradient_row(a_, a_.dvalue, a_.dvalue_strides, key, sample_, group_), a_.type, a_.dv);
      }
    }
  }

  void finish_head(std::int64_t h) const {
    for (std::int64_t i = 0; i < a_.sq; ++i) {
      const float* dq = s_.dq + i * shape_.q_stride;
      if (shape_.chunks > 1) {
        std::memcpy(shared_.dq + (((sample_ * a_.n + h) * shape_.chunks + chunk_) * a_.sq + i) * a_.d, dq, static_cast<std::size_t>(4 * a_.d));
      } else {
        store_row(dq, static_cast<float>(a_.scale), gradient_row(a_, a_.dq, a_.dq_strides, i, sample_, h), a_.type, a_.d);
      }
    }
  }

 public:
  static void* gradient_row(const AttentionArguments& a, void* data, const std::array<std::int64_t, 3>& strides, std::int64_t position,
                            std::int64_t sample, std::int64_t head) {
    return static_cast<char*>(data) + (position * strides[0] + sample * strides[1] + head * strides[2]) * size_of(a.type);
  }

 private:
  const AttentionBackwardArguments& a_;
  const BackwardShape& shape_;
  const PanelProduct& product_;
  const BackwardShared& shared_;
  const BackwardScratch& s_;
  bool pairs_;
  Draws draws_;
  std::int64_t chunk_, sample_, first_head_, group_;
  char* keys_;       ///< panels of the present block
  float *dk_, *dv_;  ///< sums of the present block
};

/// Adds `count` partial rows, `step` apart, to the first.
inline void add_rows(float* rows, std::int64_t count, std::int64_t step, std::int64_t channels) {
  for (std::int64_t r = 1; r < count; ++r) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) rows[c] += rows[r * step + c];
  }
}

/// The sums of partial gradients of one position: chunks and heads in ascending order. Positions of dq, if it has parts, come before those of dk and
/// dv.
inline void add_parts(const AttentionBackwardArguments& a, const BackwardShape& shape, const BackwardShared& shared, std::int64_t part) {
  const auto scale = static_cast<float>(a.scale);
  if (shape.chunks > 1 && part < a.sq) {
    for (std::int64_t head = 0; head < a.b * a.n; ++head) {
      float* rows = shared.dq + (head * shape.chunks * a.sq + part) * a.d;
      add_rows(rows, shape.chunks, a.sq * a.d, a.d);
      store_row(rows, scale, BackwardPart::gradient_row(a, a.dq, a.dq_strides, part, head / a.n, head % a.n), a.type, a.d);
    }
    return;
  }
  const std::int64_t key = part - (shape.chunks > 1 ? a.sq : 0), r = a.heads_per_group();
  for (std::int64_t group = 0; group < a.b * a.g; ++group) {
    float *dk = shared.dk + (group * r * a.sk + key) * a.d, *dv = shared.dv + (group * r * a.sk + key) * a.dv;
    add_rows(dk, r, a.sk * a.d, a.d);
    add_rows(dv, r, a.sk * a.dv, a.dv);
    store_row(dk, scale, BackwardPart::gradient_row(a, a.dk, a.dk_strides, key, group / a.g, group % a.g), a.type, a.d);
    store_row(dv, 1.0f, BackwardPart::gradient_row(a, a.dvalue, a.dvalue_strides, key, group / a.g, group % a.g), a.type, a.dv);
  }
}

inline AttentionPlan backward_plan(const AttentionBackwardArguments& a) {
  const BackwardShape shape(a);
  return {.shared_bytes = BackwardShared(a, shape, nullptr).bytes,
          .scratch_bytes = BackwardScratch(a, shape, nullptr).bytes,
          .parts = {shape.parts(a), (shape.chunks > 1 ? a.sq : 0) + (shape.splits_heads ? a.sk : 0)}};
}

inline void backward(const AttentionBackwardArguments& a, int stage, std::int64_t begin, std::int64_t end, void* shared_memory, void* memory) {
  const BackwardShape shape(a);
  const BackwardShared shared(a, shape, shared_memory);
  if (stage == 1) {
    for (std::int64_t part = begin; part < end; ++part) add_parts(a, shape, shared, part);
    return;
  }
  const BackwardScratch scratch(a, shape, memory);
  for (std::int64_t part = begin; part < end; ++part) BackwardPart(a, shape, shared, scratch, part).run();
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
