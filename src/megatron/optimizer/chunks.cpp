#include "megatron/optimizer/chunks.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace megatron {
namespace {

constexpr std::int64_t kChunkElements = 1 << 16;

}  // namespace

std::vector<Chunk> make_chunks(const std::vector<Parameter*>& parameters) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t size = num_elements(parameters[i]->local_shape());
    for (std::int64_t begin = 0; begin < size; begin += kChunkElements) chunks.push_back({i, begin, std::min(kChunkElements, size - begin)});
  }
  return chunks;
}

void for_each_parallel(std::size_t count, const std::function<void(std::size_t)>& visit) {
  at::parallel_for(0, static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) visit(static_cast<std::size_t>(i));
  });
}

}  // namespace megatron
