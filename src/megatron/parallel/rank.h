// A rank is an object: its place on every axis, its device and its seed. Passed by reference; there
// is no global state.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "megatron/parallel/axis.h"

namespace megatron {

/// How products with split weights exchange their rows over tp.
struct TensorParallelOptions {
  bool async_allreduce =
      true;  ///< an input gradient is on its way while the weight gradient is computed
  std::int64_t overlap_chunks = 1;  ///< > 1: a product and its collective run in so many pieces of
                                    ///< the sequence, one under the other
};

struct Rank {
  std::int64_t index = 0;  ///< in the world
  Axis tp{"tp"}, cp{"cp"}, dp{"dp"}, pp{"pp"};
  Axis dp_cp{"dp-cp"};  ///< the ranks that hold the same weights
  Axis model{"tp-pp"};  ///< the ranks that hold one replica of the model
  Axis world{"world"};
  Axis embedding{"embd"};  ///< the two ranks of a pipeline that hold one weight of the embeddings,
                           ///< where they do; else size 1
  bool sequence_parallel = false;  ///< the sequence is split over tp between layers' products
  TensorParallelOptions tp_options;
  c10::Device device{c10::kCPU};
  std::uint64_t seed = 1234;  ///< of every random site (base/philox.h)
};

}  // namespace megatron
