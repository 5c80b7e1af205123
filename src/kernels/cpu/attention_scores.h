// Turns dot products into exponents: scale, softcap, biases of positions and masks. Also makes
// dropout's draws.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cpu/attention_masking.h"
#include "kernels/cpu/philox_vector.h"
#include "kernels/cpu/vec16f.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr double kLn2 = 0.69314718055994530942;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

/// Returns 2^(exponent − lse), at most 1. The bound matters for huge scores, where lse has lost its
/// low digits.
inline Vec16f probability(Vec16f exponent, Vec16f lse) {
  return exp2(smaller(broadcast(0), exponent - lse));
}

/// Returns the index of column 0 of a block of keys in a row of distance_bias, for query number i.
inline std::int64_t distance_column(const AttentionArguments& a, std::int64_t block,
                                    std::int64_t i) {
  return block * kKeys - a.q_start - i + a.total_q - 1;
}

/// Exponents have base 2: score·log2 e. The columns of a row are [begin, end), multiples of 16.
class Scores {
 public:
  Scores(const AttentionArguments& a, std::int64_t sample, std::int64_t block)
      : a_(a),
        start_(block * kKeys),
        caps_(a.softcap > 0),
        inner_(static_cast<float>(a.scale / (caps_ ? a.softcap : 1.0))),
        scale_(static_cast<float>(kLog2E * (caps_ ? a.softcap : a.scale))),
        scales_late_(a.alibi_slopes == nullptr && a.distance_bias == nullptr && scale_ > 0) {
    if (a.document_ids == nullptr) return;
    ids_ = a.document_ids + sample * a.document_stride;
    const std::int32_t* of_keys = key_documents(a, sample);
    for (std::int64_t c = 0; c < kKeys; ++c) {
      const std::int64_t key = start_ + c;
      documents_[c] = key >= a.k_start && key < a.k_start + a.sk ? of_keys[key] : 0;
    }
  }

  /// A row that prepare() has processed must be multiplied by this positive factor to hold
  /// exponents.
  float factor() const { return scales_late_ ? scale_ : 1.0f; }

  /// Turns the dot products of query number i and head h into exponents divided by factor(), and
  /// returns the columns where it did: with `partial` only whole lanes of keys that the query sees,
  /// in which masked exponents become −∞. If `slopes` is not null, it receives the derivative of
  /// the softcap.
  Span prepare(float* row, std::int64_t begin, std::int64_t end, std::int64_t i, std::int64_t h,
               bool partial, float* slopes) const {
    Span seen{begin, end};
    if (partial) {
      seen = visible_keys(a_, i);
      seen.begin = std::clamp(seen.begin - start_, begin, end);
      seen.end = std::clamp(seen.end - start_, begin, end);
      if (seen.size() == 0) return {begin, begin};
      begin = seen.begin / kNumLanes * kNumLanes;
      end = blocks_of(seen.end, kNumLanes) * kNumLanes;
    }
    if (caps_)
      slopes != nullptr ? cap<true>(row, begin, end, slopes) : cap<false>(row, begin, end, slopes);
    if (!scales_late_) {
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) row[c] *= scale_;
    }
    if (a_.alibi_slopes != nullptr) {
      const float slope = static_cast<float>(a_.alibi_slopes[h] * kLog2E);
      const auto distance = static_cast<std::int32_t>(start_ - a_.q_start - i);
#pragma omp simd
      for (std::int32_t c = static_cast<std::int32_t>(begin); c < end; ++c)
        row[c] += slope * static_cast<float>(distance + c);
    }
    if (a_.distance_bias != nullptr) {
      const float* bias =
          a_.distance_bias + h * a_.distance_stride + distance_column(a_, start_ / kKeys, i);
#pragma omp simd
      for (std::int64_t c = begin; c < end; ++c) row[c] += static_cast<float>(kLog2E) * bias[c];
    }
    if (partial) hide(row, begin, end, seen, i);
    return {begin, end};
  }

  bool caps() const { return caps_; }

 private:
  /// Leaves the hyperbolic tangents.
  template <bool kSlopes>
  void cap(float* row, std::int64_t begin, std::int64_t end, float* slopes) const {
    for (std::int64_t c = begin; c < end; c += kNumLanes) {
      const Vec16f t = tanh(load_vec(row + c) * broadcast(inner_));
      store_vec(row + c, t);
      if constexpr (kSlopes) store_vec(slopes + c, broadcast(1) - t * t);
    }
  }

  static void hide_lanes(float* row, std::int64_t c, Span seen) {
    alignas(64) static constexpr float kLane[kNumLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                           8, 9, 10, 11, 12, 13, 14, 15};
    const Vec16f lane = load_vec(kLane), masked = broadcast(kMasked),
                 from = where_less(lane, broadcast(static_cast<float>(seen.begin - c)), masked,
                                   load_vec(row + c));
    store_vec(row + c, where_less(lane, broadcast(static_cast<float>(seen.end - c)), from, masked));
  }

  void hide(float* row, std::int64_t begin, std::int64_t end, Span seen, std::int64_t i) const {
    hide_lanes(row, begin, seen);
    hide_lanes(row, end - kNumLanes, seen);
    if (ids_ == nullptr) return;
    const std::int32_t mine = ids_[a_.q_start + i];
#pragma omp simd
    for (std::int64_t c = begin; c < end; ++c) row[c] = documents_[c] == mine ? row[c] : kMasked;
  }

  const AttentionArguments& a_;
  std::int64_t start_;
  bool caps_;
  float inner_, scale_;
  bool scales_late_;  ///< scales right before the largest exponent is subtracted
  const std::int32_t* ids_ = nullptr;
  std::int32_t documents_[kKeys];
};

/// The draws of query number i and head h for the keys of a block.
class DropoutDraws {
 public:
  /// Returns draws, of which draws[c − begin] belongs to column c in [begin, end).
  const std::uint32_t* of(const AttentionArguments& a, std::int64_t sample, std::int64_t h,
                          std::int64_t i, std::int64_t block, std::int64_t begin,
                          std::int64_t end) {
    const std::uint64_t row =
        (static_cast<std::uint64_t>(a.first_head + h) * static_cast<std::uint64_t>(a.total_q) +
         static_cast<std::uint64_t>(a.q_start + i)) *
        static_cast<std::uint64_t>(a.total_k);
    const std::uint64_t element = row + static_cast<std::uint64_t>(block * kKeys + begin);
    const auto skip = static_cast<std::int64_t>(element % 4);
    for (std::int64_t done = 0; done < skip + end - begin; done += 4 * kLanes)
      draw_blocks(a.rule.key, element / 4 + static_cast<std::uint64_t>(done / 4),
                  static_cast<std::uint64_t>(a.ordinals[sample]), draws_ + done);
    return draws_ + skip;
  }

 private:
  alignas(64) std::uint32_t draws_[kKeys + 4 * kLanes];
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
