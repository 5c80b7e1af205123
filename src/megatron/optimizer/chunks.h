// Parameters cut into pieces of bounded size, so that many small and few large tensors share the threads evenly. The cut depends on shapes
// only: sums over chunks do not change with the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "megatron/transformer/parameter.h"

namespace megatron {

struct Chunk {
  std::size_t parameter = 0;  ///< index in the list that was cut
  std::int64_t begin = 0, count = 0;
};

/// Ascending by parameter and begin.
std::vector<Chunk> make_chunks(const std::vector<Parameter*>& parameters);

/// Calls `visit(index)` for every index in [0, count) on the intra-op threads.
void for_each_parallel(std::size_t count, const std::function<void(std::size_t)>& visit);

}  // namespace megatron
