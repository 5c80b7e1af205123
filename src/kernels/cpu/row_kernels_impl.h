// The row kernels' one implementation, compiled once per instruction set inside the namespace MEGATRON_KERNEL_ISA.
#include <cmath>
#include <cstdint>

#include "kernels/cpu/row_kernels.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr int kLanes = 16;

/// Sixteen consecutive Philox blocks (64 draws) of one ordinal; draws[4·i + lane] belongs to element 4·(block + i) + lane.
inline void draw_blocks(std::uint64_t key, std::uint64_t block, std::uint64_t ordinal, std::uint32_t* draws) {
  std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = static_cast<std::uint32_t>(block + i);
    c1[i] = static_cast<std::uint32_t>((block + i) >> 32);
    c2[i] = static_cast<std::uint32_t>(ordinal);
    c3[i] = static_cast<std::uint32_t>(ordinal >> 32);
  }
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c0[i] = n0;
      c1[i] = static_cast<std::uint32_t>(p1);
      c2[i] = n2;
      c3[i] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < kLanes; ++i) {
    draws[4 * i] = c0[i];
    draws[4 * i + 1] = c1[i];
    draws[4 * i + 2] = c2[i];
    draws[4 * i + 3] = c3[i];
  }
}

template <class T>
void dropout(const T* x, const T* residual, T* out, std::int64_t rows, std::int64_t columns, RowCoordinates coordinates, DropoutRule rule) {
  const T scale = static_cast<T>(rule.scale);
  constexpr std::int64_t kDraws = 4 * kLanes;
  alignas(64) std::uint32_t draws[kDraws];
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x_row = x + row * columns;
    const T* residual_row = residual != nullptr ? residual + row * columns : nullptr;
    T* out_row = out + row * columns;
    const std::uint64_t first = coordinates.first_element[row];
    std::int64_t column = 0;
    while (column < columns) {
      const std::uint64_t element = first + static_cast<std::uint64_t>(column);
      draw_blocks(rule.key, element / 4, coordinates.ordinal[row], draws);
      const int skip = static_cast<int>(element % 4);
      const std::int64_t count = columns - column < kDraws - skip ? columns - column : kDraws - skip;
      const std::uint32_t* mine = draws + skip;
      if (residual_row != nullptr) {
        for (std::int64_t i = 0; i < count; ++i)
          out_row[column + i] = residual_row[column + i] + (mine[i] >= rule.threshold ? x_row[column + i] * scale : T(0));
      } else {
        for (std::int64_t i = 0; i < count; ++i) out_row[column + i] = mine[i] >= rule.threshold ? x_row[column + i] * scale : T(0);
      }
      column += count;
    }
  }
}

/// Σ term(c) over columns in sixteen lanes, folded pairwise.
template <class T, class Term>
T lane_sum(std::int64_t columns, Term term) {
  T lanes[kLanes] = {};
  std::int64_t column = 0;
  for (; column + kLanes <= columns; column += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(column + lane);
  }
  for (int lane = 0; column + lane < columns; ++lane) lanes[lane] += term(column + lane);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class T>
void rms_norm(const T* x, const T* weight, T* y, T* rstd, std::int64_t rows, std::int64_t columns, double epsilon, double offset) {
  const T shift = static_cast<T>(offset);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x_row = x + row * columns;
    T* y_row = y + row * columns;
    const T sum = lane_sum<T>(columns, [x_row](std::int64_t c) { return x_row[c] * x_row[c]; });
    const T scale = T(1) / std::sqrt(sum / static_cast<T>(columns) + static_cast<T>(epsilon));
    rstd[row] = scale;
    for (std::int64_t c = 0; c < columns; ++c) y_row[c] = x_row[c] * scale * (weight[c] + shift);
  }
}

template <class T>
void rms_norm_backward_input(const T* dy, const T* x, const T* weight, const T* rstd, T* dx, std::int64_t rows, std::int64_t columns, double offset) {
  const T shift = static_cast<T>(offset);
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x_row = x + row * columns;
    const T* dy_row = dy + row * columns;
    T* dx_row = dx + row * columns;
    const T scale = rstd[row];
    const T dot = lane_sum<T>(columns, [=](std::int64_t c) { return dy_row[c] * (weight[c] + shift) * x_row[c]; });
    const T pull = dot * scale * scale / static_cast<T>(columns);
    for (std::int64_t c = 0; c < columns; ++c) dx_row[c] = scale * (dy_row[c] * (weight[c] + shift) - x_row[c] * pull);
  }
}

/// Rows are summed in blocks, blocks in double: thousands of rows (every head of every token under q and k norms) keep their last digits.
template <class T>
void rms_norm_backward_weight(const T* dy, const T* x, const T* rstd, T* dweight, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                              std::int64_t end) {
  constexpr std::int64_t kColumns = 64, kRows = 32;
  for (std::int64_t first = begin; first < end; first += kColumns) {
    const std::int64_t count = end - first < kColumns ? end - first : kColumns;
    double total[kColumns] = {};
    for (std::int64_t block = 0; block < rows; block += kRows) {
      T partial[kColumns] = {};
      for (std::int64_t row = block; row < rows && row < block + kRows; ++row) {
        const T* x_row = x + row * columns + first;
        const T* dy_row = dy + row * columns + first;
        for (std::int64_t c = 0; c < count; ++c) partial[c] += dy_row[c] * (x_row[c] * rstd[row]);
      }
      for (std::int64_t c = 0; c < count; ++c) total[c] += static_cast<double>(partial[c]);
    }
    for (std::int64_t c = 0; c < count; ++c) dweight[first + c] = static_cast<T>(total[c]);
  }
}

template <class T>
void rotary(const T* x, const T* cos, const T* sin, T* out, const RotaryShape& shape) {
  const std::int64_t half = shape.rotary_dim / 2;
  const T sign = static_cast<T>(shape.sign);
  const std::int64_t first_step = shape.interleaved ? 2 : 1, partner = shape.interleaved ? 1 : half;
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    const T* cos_row = cos + token / shape.tokens_per_row * half;
    const T* sin_row = sin + token / shape.tokens_per_row * half;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* in = x + token * shape.token_stride + head * shape.head_stride;
      T* to = out + (token * shape.heads + head) * shape.head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        const T a = in[i * first_step], b = in[i * first_step + partner];
        to[i * first_step] = a * cos_row[i] - sign * b * sin_row[i];
        to[i * first_step + partner] = b * cos_row[i] + sign * a * sin_row[i];
      }
      for (std::int64_t i = shape.rotary_dim; i < shape.head_dim; ++i) to[i] = in[i];
    }
  }
}

template <class T>
RowKernels<T> table() {
  return {dropout<T>, rms_norm<T>, rms_norm_backward_input<T>, rms_norm_backward_weight<T>, rotary<T>};
}
template RowKernels<float> table();
template RowKernels<double> table();

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
