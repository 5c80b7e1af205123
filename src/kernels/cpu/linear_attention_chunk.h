// A chunk of one head of linear attention: its operands, and the rows that it adds to the state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention_masking.h"
#include "kernels/cpu/lane_reduction.h"
#include "kernels/cpu/linear_attention.h"
#include "kernels/cpu/small_gemm.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

inline constexpr std::int64_t kRows = kLinearAttentionRows;
/// Triangles are cut into blocks of rows, and only the blocks below the diagonal are computed.
inline constexpr std::int64_t kBlock = 16;

inline std::int64_t padded(std::int64_t columns) {
  return (columns + kBlock - 1) / kBlock * kBlock;
}

/// Rows of whole blocks of columns. Their stride is an odd number of blocks, so that a column of
/// blocks uses all sets of the L1 cache.
struct RowShape {
  explicit RowShape(std::int64_t width)
      : columns(padded(width)), stride(columns / kBlock % 2 == 0 ? columns + kBlock : columns) {}
  std::int64_t columns, stride;
};
inline constexpr std::int64_t kSquareStride = kRows + kBlock;  ///< of matrices […, 64]

/// Calls use(first row, number of rows, end of the block) for the blocks of `count` rows.
template <class Use>
inline void for_each_row_block(std::int64_t count, const Use& use) {
  for (std::int64_t row = 0; row < count; row += kBlock)
    use(row, std::min(kBlock, count - row), std::min(row + kBlock, count));
}

/// Multiplies rows by one factor each.
template <class C>
inline void scale_rows(const C* from, const C* factors, std::int64_t count, const RowShape& shape,
                       C* to) {
  for (std::int64_t i = 0; i < count; ++i, from += shape.stride, to += shape.stride) {
    const C factor = factors[i];
#pragma omp simd
    for (std::int64_t c = 0; c < shape.columns; ++c) to[c] = factor * from[c];
  }
}

/// to += factor·from
template <class C>
inline void add_scaled(C factor, const C* from, std::int64_t count, C* to) {
  using V = Vectors<C>;
  const auto factors = V::splat(factor);
  for (std::int64_t c = 0; c < count; c += kLanesOf<C>)
    V::store(to + c, multiply_add(factors, V::load(from + c), V::load(to + c)));
}

/// Where the rows of a chunk are.
struct ChunkPlace {
  std::int64_t sample, head, group;
  std::int64_t row, count;
};

/// Calls visit(number, place) for the chunks of a head of a piece.
template <class Visit>
inline void for_each_chunk(const LinearAttentionArguments& a, const RowPiece& piece,
                           std::int64_t head, const Visit& visit) {
  ChunkPlace place{piece.column, head, head / (a.heads / a.groups), piece.row, 0};
  const std::int64_t end = piece.row + piece.count;
  for (std::int64_t number = 0; place.row < end; ++number, place.row += place.count) {
    const std::int64_t position = piece.position + place.row - piece.row;
    place.count = std::min(kRows - position % kRows, end - place.row);
    visit(number, place);
  }
}

inline std::int64_t num_chunks(const RowPiece& piece) {
  return (piece.position % kRows + piece.count + kRows - 1) / kRows;
}

/// Copies rows of a head. The padding, and the rows up to the end of the last block, become zeros.
template <class T, class C>
inline void load_rows(const HeadsView& x, const ChunkPlace& place, std::int64_t head,
                      std::int64_t width, const RowShape& shape, C* to) {
  for (std::int64_t i = 0; i < place.count; ++i, to += shape.stride) {
    const T* from = static_cast<const T*>(x.data) + (place.row + i) * x.position_stride +
                    place.sample * x.sample_stride + head * x.head_stride;
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) to[c] = load(from[c]);
    std::fill(to + width, to + shape.columns, C(0));
  }
  std::fill(to, to + (padded(place.count) - place.count) * shape.stride, C(0));
}

/// The numbers of a chunk of one head. Matrices are row by row: N and P stand for rows of the
/// shapes of keys and values.
template <class C>
class Chunk {
 public:
  Chunk(const LinearAttentionArguments& a, Arena& arena) : keys(a.n), values(a.p), a_(a) {
    for (C** rows : {&q, &k}) *rows = arena.take<C>(kRows * keys.stride);
    for (C** rows : {&w, &u, &scratch}) *rows = arena.take<C>(kRows * values.stride);
    for (C** square : {&decay, &scores, &reads}) *square = arena.take<C>(kRows * kSquareStride);
    keys_transposed = arena.take<C>(keys.columns * kSquareStride);
    for (C** column : {&enter, &leave, &beta, &q_factors, &k_factors})
      *column = arena.take<C>(kRows);
  }

  /// Loads k, v, g and β, and computes what the chunk adds to `state` [n, P].
  template <class T>
  void prepare(const ChunkPlace& place, const C* state) {
    count = place.count;
    load_rows<T>(a_.k, place, place.group, a_.n, keys, k);
    scale(k, 1, k_factors);
    transpose(k, padded(count), keys.columns, keys.stride, keys_transposed, kSquareStride);
    compute_decay(place);
    load_rows<T>(a_.v, place, place.head, a_.p, values, w);
    if (a_.delta_rule) {
      solve(state);
    } else {
      scale_rows(w, beta, count, values, u);
    }
    std::fill(u + count * values.stride, u + padded(count) * values.stride, C(0));
  }

  /// Loads q and computes the scores e^{B_i − B_j}·(q_i·k_j).
  template <class T>
  void prepare_scores(const ChunkPlace& place) {
    load_rows<T>(a_.q, place, place.group, a_.n, keys, q);
    scale(q, static_cast<C>(a_.q_scale), q_factors);
    decayed_products(q, keys_transposed, a_.n, keys.stride, scores);
  }

  /// to = e^{B_L}·state + Σ e^{B_L − B_i}·k_i·u_iᵀ. `to` may be the state.
  void advance(const C* state, C* to) const {
    const C total = enter[count - 1];
#pragma omp simd
    for (std::int64_t i = 0; i < a_.n * values.stride; ++i) to[i] = total * state[i];
    scale_rows(u, leave, count, values, scratch);
    small_gemm<C>({a_.n, values.columns, count, keys_transposed, kSquareStride, 1, scratch,
                   values.stride, to, values.stride, true});
  }

  /// to_ij = e^{B_i − B_j}·(x_i·y_j) for j ≤ i, and 0 in the rest of the blocks on the diagonal.
  /// y is transposed [depth, 64].
  void decayed_products(const C* x, const C* y, std::int64_t depth, std::int64_t stride,
                        C* to) const {
    for_each_row_block(count, [&](std::int64_t row, std::int64_t rows, std::int64_t) {
      C* products = to + row * kSquareStride;
      const C* factors = decay + row * kSquareStride;
      small_gemm<C>({rows, row + kBlock, depth, x + row * stride, stride, 1, y, kSquareStride,
                     products, kSquareStride});
      for (std::int64_t i = 0; i < rows * kSquareStride; i += kSquareStride) {
#pragma omp simd
        for (std::int64_t j = 0; j < row + kBlock; ++j) products[i + j] *= factors[i + j];
      }
    });
  }

  /// to += triangle·y for a lower triangle [64, 64].
  void add_lower(const C* triangle, const C* y, const RowShape& shape, C* to) const {
    for_each_row_block(count, [&](std::int64_t row, std::int64_t rows, std::int64_t end) {
      small_gemm<C>({rows, shape.columns, end, triangle + row * kSquareStride, kSquareStride, 1, y,
                     shape.stride, to + row * shape.stride, shape.stride, true});
    });
  }

  /// to += triangleᵀ·y
  void add_lower_transposed(const C* triangle, const C* y, const RowShape& shape, C* to) const {
    for_each_row_block(count, [&](std::int64_t row, std::int64_t rows, std::int64_t) {
      small_gemm<C>({rows, shape.columns, count - row, triangle + row * kSquareStride + row, 1,
                     kSquareStride, y + row * shape.stride, shape.stride, to + row * shape.stride,
                     shape.stride, true});
    });
  }

  /// Takes the gradient of u and turns it into that of w, both [64, P], for the delta rule.
  void solve_backward(C* du, C* dw) const {
    for (std::int64_t row = (count - 1) / kBlock * kBlock; row >= 0; row -= kBlock) {
      const std::int64_t end = std::min(row + kBlock, count);
      if (end < count)
        small_gemm<C>({kBlock, values.columns, count - end, reads + end * kSquareStride + row, 1,
                       kSquareStride, dw + end * values.stride, values.stride,
                       du + row * values.stride, values.stride, true});
      for (std::int64_t i = end - 1; i >= row; --i) {
        scale_rows(du + i * values.stride, beta + i, 1, values, dw + i * values.stride);
        for (std::int64_t j = row; j < i; ++j)
          add_scaled(reads[i * kSquareStride + j], dw + i * values.stride, values.columns,
                     du + j * values.stride);
      }
    }
  }

  std::int64_t count = 0;
  const RowShape keys, values;
  C *q, *k;            ///< [64, N], normalised and scaled
  C* keys_transposed;  ///< [N, 64]
  C *w, *u;            ///< [64, P] with u_i = β_i·w_i
  C* scratch;          ///< [64, P]
  C *decay, *scores;   ///< [64, 64], lower triangles
  C* reads;            ///< [64, 64]: −e^{B_i − B_j}·(k_i·k_j) for j < i, by the delta rule
  C *enter, *leave;    ///< e^{B_i} and e^{B_L − B_i}
  C* beta;
  C *q_factors, *k_factors;  ///< what the rows of q and k were multiplied by

 private:
  void scale(C* rows, C factor, C* factors) const {
    for (std::int64_t i = 0; i < count; ++i) {
      C* row = rows + i * keys.stride;
      factors[i] = factor;
      if (a_.normalizes_qk)
        factors[i] /= std::sqrt(
            lane_sum<C>(a_.n, [row](std::int64_t c) { return row[c] * row[c]; }) + C(1e-6));
      if (factors[i] != C(1)) scale_rows(row, factors + i, 1, keys, row);
    }
  }

  void compute_decay(const ChunkPlace& place) {
    double sums[kRows], sum = 0;
    const C *g = static_cast<const C*>(a_.g), *given = static_cast<const C*>(a_.beta);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = ((place.row + i) * a_.b + place.sample) * a_.heads + place.head;
      sums[i] = sum += static_cast<double>(g[at]);
      beta[i] = given != nullptr ? given[at] : C(1);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      C* row = decay + i * kSquareStride;
      const std::int64_t end = padded(i + 1);
      for (std::int64_t j = 0; j <= i; ++j) row[j] = static_cast<C>(sums[i] - sums[j]);
      std::fill(row + i + 1, row + end, -std::numeric_limits<C>::infinity());
      exponentials(row, end);
      enter[i] = static_cast<C>(sums[i]);
      leave[i] = static_cast<C>(sum - sums[i]);
    }
    std::fill(enter + count, enter + padded(count), C(0));
    std::fill(leave + count, leave + padded(count), C(0));
    exponentials(enter, padded(count));
    exponentials(leave, padded(count));
  }

  /// w_i = v_i − e^{B_i}·Sᵀk_i − Σ_{j < i} e^{B_i − B_j}·(k_i·k_j)·u_j
  void solve(const C* state) {
    small_gemm<C>({count, values.columns, a_.n, k, keys.stride, 1, state, values.stride, scratch,
                   values.stride});
    decayed_products(k, keys_transposed, a_.n, keys.stride, reads);
    for (std::int64_t i = 0; i < count; ++i) {
      add_scaled(-enter[i], scratch + i * values.stride, values.columns, w + i * values.stride);
      C* row = reads + i * kSquareStride;
      for (std::int64_t j = 0; j < padded(i + 1); ++j) row[j] = j < i ? -row[j] : C(0);
    }
    for_each_row_block(count, [&](std::int64_t row, std::int64_t rows, std::int64_t end) {
      small_gemm<C>({rows, values.columns, row, reads + row * kSquareStride, kSquareStride, 1, u,
                     values.stride, w + row * values.stride, values.stride, true});
      for (std::int64_t i = row; i < end; ++i) {
        for (std::int64_t j = row; j < i; ++j)
          add_scaled(reads[i * kSquareStride + j], u + j * values.stride, values.columns,
                     w + i * values.stride);
        scale_rows(w + i * values.stride, beta + i, 1, values, u + i * values.stride);
      }
    });
  }

  const LinearAttentionArguments& a_;
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
