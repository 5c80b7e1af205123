// The kernels of linear attention, compiled once for each instruction set.
#include "kernels/cpu/linear_attention.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/linear_attention_chunk.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Copies the state before a piece.
template <class C>
void load_state(const LinearAttentionArguments& a, std::int64_t piece, std::int64_t head,
                const RowShape& values, C* state) {
  std::fill(state, state + a.n * values.stride, C(0));
  if (a.initial_states == nullptr) return;
  const C* from = static_cast<const C*>(a.initial_states) + (piece * a.heads + head) * a.n * a.p;
  for (std::int64_t i = 0; i < a.n; ++i)
    std::copy_n(from + i * a.p, a.p, state + i * values.stride);
}

template <class C>
struct ForwardMemory {
  ForwardMemory(const LinearAttentionArguments& a, void* memory)
      : arena(memory),
        chunk(a, arena),
        state(arena.take<C>(a.n * chunk.values.stride)),
        out(arena.take<C>(kRows * chunk.values.stride)) {}
  Arena arena;
  Chunk<C> chunk;
  C *state, *out;
};

template <class T>
void forward_head(const LinearAttentionForwardArguments& a, std::int64_t piece, std::int64_t head,
                  void* workspace) {
  using C = Compute<T>;
  ForwardMemory<C> memory(a, workspace);
  Chunk<C>& chunk = memory.chunk;
  const auto [columns, stride] = chunk.values;
  C *state = memory.state, *rows = memory.out;
  load_state(a, piece, head, chunk.values, state);
  for_each_chunk(a, a.pieces[piece], head, [&](std::int64_t, const ChunkPlace& place) {
    chunk.template prepare<T>(place, state);
    chunk.template prepare_scores<T>(place);
    small_gemm<C>(
        {place.count, columns, a.n, chunk.q, chunk.keys.stride, 1, state, stride, rows, stride});
    scale_rows(rows, chunk.enter, place.count, chunk.values, rows);
    chunk.add_lower(chunk.scores, chunk.u, chunk.values, rows);
    for (std::int64_t i = 0; i < place.count; ++i) {
      const C* row = rows + i * stride;
      T* out =
          static_cast<T*>(a.out) + (((place.row + i) * a.b + place.sample) * a.heads + head) * a.p;
#pragma omp simd
      for (std::int64_t c = 0; c < a.p; ++c) store(out[c], row[c]);
    }
    chunk.advance(state, state);
  });
  if (a.final_states == nullptr) return;
  C* to = static_cast<C*>(a.final_states) + (piece * a.heads + head) * a.n * a.p;
  for (std::int64_t i = 0; i < a.n; ++i) std::copy_n(state + i * stride, a.p, to + i * a.p);
}

inline std::int64_t most_chunks(const LinearAttentionArguments& a) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < a.num_pieces; ++i) most = std::max(most, num_chunks(a.pieces[i]));
  return most;
}

/// Backward of a head: a pass over the chunks that keeps the state before each, then one from the
/// last chunk to the first with the gradient of the state.
template <class T>
class BackwardHead {
 public:
  using C = Compute<T>;

  BackwardHead(const LinearAttentionBackwardArguments& a, void* workspace)
      : a_(a),
        arena_(workspace),
        chunk_(a, arena_),
        keys_(chunk_.keys),
        values_(chunk_.values),
        n_(keys_.stride),
        p_(values_.stride) {
    for (C** rows : {&dq_, &dk_reads_, &dk_writes_}) *rows = arena_.take<C>(kRows * n_);
    for (C** rows : {&dout_, &du_, &dw_}) *rows = arena_.take<C>(kRows * p_);
    for (C** square : {&dscores_, &dreads_}) *square = arena_.take<C>(kRows * kSquareStride);
    u_transposed_ = arena_.take<C>(values_.columns * kSquareStride);
    diagonal_ = arena_.take<C>(kRows);
    dstate_ = arena_.take<C>(a.n * p_);
    transposed_ = arena_.take<C>(a.p * n_);
    states_ = arena_.take<C>(most_chunks(a) * a.n * p_);
  }
  std::int64_t bytes() const { return arena_.bytes(); }

  void run(std::int64_t piece, std::int64_t head, std::int64_t split) {
    const RowPiece& rows = a_.pieces[piece];
    const std::int64_t last = num_chunks(rows) - 1;
    split_ = split;
    load_state(a_, piece, head, values_, states_);
    for_each_chunk(a_, rows, head, [&](std::int64_t number, const ChunkPlace& place) {
      if (number == last) return;
      chunk_.template prepare<T>(place, state(number));
      chunk_.advance(state(number), state(number + 1));
    });
    std::fill(dstate_, dstate_ + a_.n * p_, C(0));
    std::fill(transposed_, transposed_ + a_.p * n_, C(0));
    ChunkPlace place{rows.column, head, head / (a_.heads / a_.groups), rows.row + rows.count, 0};
    for (std::int64_t number = last; number >= 0; --number) {
      const std::int64_t begin =
          std::max(rows.row, rows.row + number * kRows - rows.position % kRows);
      place.count = place.row - begin;
      place.row = begin;
      run_chunk(place, number, number == last);
    }
  }

 private:
  C* state(std::int64_t number) const { return states_ + number * a_.n * p_; }

  void run_chunk(const ChunkPlace& place, std::int64_t number, bool is_last) {
    const C* before = state(number);
    chunk_.template prepare<T>(place, before);
    chunk_.template prepare_scores<T>(place);
    load_rows<T>(a_.dout, place, place.head, a_.p, values_, dout_);
    find_dw(place.count);
    store_dv_and_dbeta(place);
    transpose(chunk_.u, padded(place.count), a_.p, p_, u_transposed_, kSquareStride);
    transpose(before, a_.n, a_.p, p_, transposed_, n_);
    reader_gradient(dout_, dscores_, dq_);
    take_diagonal(place.count);
    if (a_.delta_rule) {
      // The delta rule reads the state by −k, as the output reads it by q.
      for (C* row = dw_; row < dw_ + place.count * p_; row += p_)
        for (std::int64_t c = 0; c < values_.columns; ++c) row[c] = -row[c];
      reader_gradient(dw_, dreads_, dk_reads_);
      for (std::int64_t i = 0; i < place.count; ++i) dreads_[i * kSquareStride + i] = C(0);
      chunk_.add_lower(dreads_, chunk_.k, keys_, dk_reads_);
    }
    chunk_.add_lower(dscores_, chunk_.k, keys_, dq_);
    writer_gradient(place.count);
    store_dg(place, is_last ? C(0) : state_gradient_dot(number + 1));
    store_dq_and_dk(place);
    retreat(place.count);
  }

  /// Computes the gradients of u and w from those of the outputs and of the state behind the chunk.
  void find_dw(std::int64_t count) {
    small_gemm<C>({count, values_.columns, a_.n, chunk_.k, n_, 1, dstate_, p_, du_, p_});
    scale_rows(du_, chunk_.leave, count, values_, du_);
    chunk_.add_lower_transposed(chunk_.scores, dout_, values_, du_);
    if (a_.delta_rule) {
      chunk_.solve_backward(du_, dw_);
    } else {
      scale_rows(du_, chunk_.beta, count, values_, dw_);
    }
  }

  void store_dv_and_dbeta(const ChunkPlace& place) const {
    for (std::int64_t i = 0; i < place.count; ++i) {
      const std::int64_t at = element(place, i);
      const C *du = du_ + i * p_, *dw = dw_ + i * p_, *w = chunk_.w + i * p_;
      T* dv = static_cast<T*>(a_.dv) + at * a_.p;
#pragma omp simd
      for (std::int64_t c = 0; c < a_.p; ++c) store(dv[c], dw[c]);
      if (a_.dbeta != nullptr)
        static_cast<C*>(a_.dbeta)[at] =
            lane_sum<C>(a_.p, [du, w](std::int64_t c) { return du[c] * w[c]; });
    }
  }

  /// Computes the gradient of the decayed products of a reader and k, and that part of the reader's
  /// gradient which comes from the state before the chunk.
  void reader_gradient(const C* d, C* dproducts, C* dreader) {
    const std::int64_t count = chunk_.count;
    chunk_.decayed_products(d, u_transposed_, a_.p, p_, dproducts);
    small_gemm<C>({count, keys_.columns, a_.p, d, p_, 1, transposed_, n_, dreader, n_});
    scale_rows(dreader, chunk_.enter, count, keys_, dreader);
  }

  /// Leaves the score of each row with itself out of the gradients, up to store_dq_and_dk(): it has
  /// no decay, and where states decay fast, the others would drown in its rounding in store_dg().
  void take_diagonal(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      diagonal_[i] = std::exchange(dscores_[i * kSquareStride + i], C(0));
  }

  /// Computes the gradient of k as what is written to the state.
  void writer_gradient(std::int64_t count) {
    transpose(dstate_, a_.n, a_.p, p_, transposed_, n_);
    small_gemm<C>({count, keys_.columns, a_.p, chunk_.u, p_, 1, transposed_, n_, dk_writes_, n_});
    scale_rows(dk_writes_, chunk_.leave, count, keys_, dk_writes_);
    chunk_.add_lower_transposed(dscores_, chunk_.q, keys_, dk_writes_);
    if (a_.delta_rule) chunk_.add_lower_transposed(dreads_, chunk_.k, keys_, dk_writes_);
  }

  C state_gradient_dot(std::int64_t number) const {
    const C *behind = state(number), *d = dstate_;
    return lane_sum<C>(a_.n * p_, [behind, d](std::int64_t i) { return behind[i] * d[i]; });
  }

  /// Every other term of the outputs and of the state behind the chunk has the factor e^{B} of its
  /// reader and e^{−B} of its writer, so the gradient of B_i is that of the reader times the
  /// reader, less that of the writer times the writer. `at_end` is that of B_L by the state. g_i
  /// is part of all B_j with j ≥ i.
  void store_dg(const ChunkPlace& place, C at_end) const {
    double sum = at_end;
    for (std::int64_t i = place.count - 1; i >= 0; --i) {
      const C *q = chunk_.q + i * n_, *k = chunk_.k + i * n_, *dq = dq_ + i * n_,
              *reads = dk_reads_ + i * n_, *writes = dk_writes_ + i * n_;
      const bool delta = a_.delta_rule;
      sum += lane_sum<C>(a_.n, [=](std::int64_t c) {
        return q[c] * dq[c] + k[c] * ((delta ? reads[c] : C(0)) - writes[c]);
      });
      static_cast<C*>(a_.dg)[element(place, i)] = static_cast<C>(sum);
    }
  }

  void store_dq_and_dk(const ChunkPlace& place) const {
    const C q_scale = static_cast<C>(a_.q_scale);
    for (std::int64_t i = 0; i < place.count; ++i) {
      C *dk = dk_writes_ + i * n_, *reads = dk_reads_ + i * n_;
      if (a_.delta_rule) add_scaled(C(1), reads, keys_.columns, dk);
      add_scaled(diagonal_[i], chunk_.q + i * n_, keys_.columns, dk);
      add_scaled(diagonal_[i], chunk_.k + i * n_, keys_.columns, dq_ + i * n_);
      const std::int64_t at =
          ((split_ * a_.s + place.row + i) * a_.b + place.sample) * a_.groups + place.group;
      add_row_gradient(dq_ + i * n_, chunk_.q + i * n_, chunk_.q_factors[i], q_scale,
                       static_cast<C*>(a_.dq) + at * a_.n);
      add_row_gradient(dk, chunk_.k + i * n_, chunk_.k_factors[i], C(1),
                       static_cast<C*>(a_.dk) + at * a_.n);
    }
  }

  /// Adds the gradient of a row x, given that of y = factor·x, where factor = scale / ‖x‖ if rows
  /// are normalised.
  void add_row_gradient(const C* dy, const C* y, C factor, C scale, C* dx) const {
    C along = C(0);
    if (a_.normalizes_qk && scale != C(0))
      along = lane_sum<C>(a_.n, [dy, y](std::int64_t c) { return dy[c] * y[c]; }) / (scale * scale);
#pragma omp simd
    for (std::int64_t c = 0; c < a_.n; ++c) dx[c] += factor * (dy[c] - along * y[c]);
  }

  /// Turns the gradient of the state behind the chunk into that of the state before it.
  void retreat(std::int64_t count) {
    const C total = chunk_.enter[count - 1];
#pragma omp simd
    for (std::int64_t i = 0; i < a_.n * p_; ++i) dstate_[i] *= total;
    const auto add_reader = [&](const C* reader, const C* d) {
      scale_rows(d, chunk_.enter, count, values_, chunk_.scratch);
      small_gemm<C>(
          {a_.n, values_.columns, count, reader, 1, n_, chunk_.scratch, p_, dstate_, p_, true});
    };
    add_reader(chunk_.q, dout_);
    if (a_.delta_rule) add_reader(chunk_.k, dw_);
  }

  std::int64_t element(const ChunkPlace& place, std::int64_t i) const {
    return ((place.row + i) * a_.b + place.sample) * a_.heads + place.head;
  }

  const LinearAttentionBackwardArguments& a_;
  Arena arena_;
  Chunk<C> chunk_;
  const RowShape &keys_, &values_;
  const std::int64_t n_, p_;  ///< their strides
  std::int64_t split_ = 0;
  C *dq_, *dk_reads_, *dk_writes_;     ///< [64, N]
  C *dout_, *du_, *dw_;                ///< [64, P]
  C* u_transposed_;                    ///< [p, 64]
  C *dscores_, *dreads_;               ///< [64, 64]
  C* diagonal_;                        ///< [64], of dscores_
  C *dstate_, *transposed_, *states_;  ///< [n, P], [p, N] and [chunks, n, P]
};

inline void forward(const LinearAttentionForwardArguments& a, std::int64_t begin, std::int64_t end,
                    void* workspace) {
  with_type(a.type, [&]<class T>(T) {
    for (std::int64_t part = begin; part < end; ++part)
      forward_head<T>(a, part / a.heads, part % a.heads, workspace);
  });
}

inline void backward(const LinearAttentionBackwardArguments& a, std::int64_t begin,
                     std::int64_t end, void* workspace) {
  const std::int64_t per_group = a.heads / a.groups;
  with_type(a.type, [&]<class T>(T) {
    BackwardHead<T> head(a, workspace);
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t split = part % a.splits, group = part / a.splits % a.groups,
                         piece = part / a.splits / a.groups;
      for (std::int64_t i = per_group * split / a.splits; i < per_group * (split + 1) / a.splits;
           ++i)
        head.run(piece, group * per_group + i, split);
    }
  });
}

inline std::int64_t forward_workspace(const LinearAttentionArguments& a) {
  if (a.type == Type::f64) return ForwardMemory<double>(a, nullptr).arena.bytes();
  return ForwardMemory<float>(a, nullptr).arena.bytes();
}

inline std::int64_t backward_workspace(const LinearAttentionArguments& given) {
  LinearAttentionBackwardArguments a{};
  static_cast<LinearAttentionArguments&>(a) = given;
  if (a.type == Type::f64) return BackwardHead<double>(a, nullptr).bytes();
  return BackwardHead<float>(a, nullptr).bytes();
}

LinearAttentionKernels linear_attention_kernels() {
  return {forward_workspace, backward_workspace, forward, backward};
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(LinearAttentionKernels, linear_attention_kernels)
