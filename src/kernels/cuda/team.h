// A team is the group of threads that work together on one row or chunk. Bodies are written once
// against it. On the device its threads run concurrently. On the host SerialTeam runs them in turn.
// Sums fold the lanes pairwise in one order, so both give the same bits.
#pragma once

#include <cstring>

#include "kernels/cuda/portable.h"

namespace megatron::kernels::cuda {

/// The team on the host, for tests.
template <int kSize>
struct SerialTeam {
  static constexpr int size = kSize;

  /// Calls body(thread) for every thread.
  template <class Body>
  void each(const Body& body) const {
    for (int thread = 0; thread < kSize; ++thread) body(thread);
  }

  /// Returns Σ term(thread). In the fold lane i takes lane i + half, for half = size/2 … 1.
  template <class Number, class Term>
  Number sum(const Term& term) const {
    Number lanes[kSize];
    for (int thread = 0; thread < kSize; ++thread) lanes[thread] = term(thread);
    for (int half = kSize / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
  }

  static constexpr int kLanes = 32;

  /// Gives each thread one run, Σ over lanes of term(run, lane), folded. Then adds the runs
  /// pairwise.
  template <class Number, class Term>
  Number sum_of_runs(const Term& term) const {
    Number runs[kSize];
    for (int run = 0; run < kSize; ++run)
      runs[run] =
          SerialTeam<kLanes>().template sum<Number>([&](int lane) { return term(run, lane); });
    for (int step = 1; step < kSize; step *= 2) {
      for (int run = 0; run < kSize; run += 2 * step) runs[run] += runs[run + step];
    }
    return runs[0];
  }

  /// Returns the largest term(thread).
  template <class Number, class Term>
  Number max(const Term& term) const {
    Number largest = term(0);
    for (int thread = 1; thread < kSize; ++thread) {
      const Number mine = term(thread);
      if (mine > largest) largest = mine;
    }
    return largest;
  }

  /// Returns memory that the threads share, with any contents at first.
  template <class Memory>
  Memory& shared() const {
    thread_local Memory memory;
    std::memset(&memory, 0xFF, sizeof(memory));
    return memory;
  }

  /// Waits until every thread has finished its work so far.
  void sync() const {}
};

#if defined(__CUDACC__)
/// The team on the device. With kSize = 32 it is a warp, and a block has several of them
/// (threadIdx.y). Larger teams are a whole block.
template <int kSize>
struct DeviceTeam {
  static constexpr int size = kSize;
  static constexpr int kPerBlock = kSize == 32 ? 8 : 1;

  __device__ static void sync() {
    if constexpr (kSize == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  template <class Body>
  __device__ void each(const Body& body) const {
    body(static_cast<int>(threadIdx.x));
  }

  template <class Number, class Term>
  __device__ Number sum(const Term& term) const {
    return fold<Number>(term, [](Number a, Number b) { return a + b; });
  }

  static constexpr int kLanes = 32;

  /// A team of 256 has eight warps, so each warp takes every eighth run.
  template <class Number, class Term>
  __device__ Number sum_of_runs(const Term& term) const {
    static_assert(kSize % kLanes == 0 && kPerBlock == 1, "whole warps, one team in a block");
    __shared__ Number runs[kSize];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
    for (int run = thread / kLanes; run < kSize; run += kSize / kLanes) {
      Number sum = term(run, lane);
      for (int half = kLanes / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, half);
      if (lane == 0) runs[run] = sum;
    }
    sync();
    for (int step = 1; step < kSize; step *= 2) {
      if (thread % (2 * step) == 0) runs[thread] += runs[thread + step];
      sync();
    }
    const Number result = runs[0];
    sync();
    return result;
  }

  template <class Number, class Term>
  __device__ Number max(const Term& term) const {
    return fold<Number>(term, [](Number a, Number b) { return b > a ? b : a; });
  }

  template <class Memory>
  __device__ Memory& shared() const {
    static_assert(kPerBlock == 1, "one team in a block");
    __shared__ Memory memory;
    return memory;
  }

 private:
  template <class Number, class Term, class Join>
  __device__ Number fold(const Term& term, const Join& join) const {
    __shared__ Number shared[kPerBlock][kSize];
    Number* lanes = shared[threadIdx.y];
    const int thread = static_cast<int>(threadIdx.x);
    lanes[thread] = term(thread);
    sync();
    for (int half = kSize / 2; half > 0; half /= 2) {
      if (thread < half) lanes[thread] = join(lanes[thread], lanes[thread + half]);
      sync();
    }
    const Number result = lanes[0];
    sync();
    return result;
  }
};
#endif

}  // namespace megatron::kernels::cuda
