// GEMMs with a sharded weight that exchange rows with the ranks of the weight's axis. Rows are
// positions × samples, so a slice of the sequence is a run of rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/parallel/rank.h"

namespace megatron {

/// How the rows of x reach this rank and the rows of y leave it. No effect on an axis of size 1.
struct LinearExchange {
  enum class Input {
    own,     ///< x is sharded over its features, as the weight is
    copied,  ///< x is equal on every rank; backward all-reduces its gradient
    /// x is this rank's slice of the sequence: forward all-gathers it, backward reduce-scatters its
    /// gradient
    gathered
  };
  enum class Output {
    own,              ///< y is sharded over its features, as the weight is
    reduced,          ///< y is a partial sum: forward all-reduces it
    reduce_scattered  ///< y is a partial sum: forward reduce-scatters it over the sequence
  };
  Input input = Input::own;
  Output output = Output::own;
  TensorParallelOptions options;
  /// A string literal that names the calls in the communication counters.
  const char* what = "linear";
};

/// The axis of an exchange, the number of pieces it is divided into, and its name in the counters.
struct RowGroup {
  const Axis& axis;
  std::int64_t chunks = 1;
  const char* what = "linear";
};

/// Returns all ranks' rows of x [m, k] times b [k, n], plus bias [n] or undefined: [size·m, n].
/// `all`, unless null, receives the gathered rows [size·m, k]. With several chunks, the GEMM of one
/// chunk overlaps the arrival of later ones.
at::Tensor all_gather_matmul(const at::Tensor& x, const at::Tensor& b, const at::Tensor& bias,
                             const RowGroup& group, at::Tensor* all = nullptr);

/// Returns the sum over the ranks of x [m, k] · b [k, n], or with `scatter` this rank's slice of
/// its rows. With several chunks, sending one chunk overlaps the GEMM of the next.
at::Tensor matmul_reduce(const at::Tensor& x, const at::Tensor& b, bool scatter,
                         const RowGroup& group);

}  // namespace megatron
