#include "megatron/ops/cache_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

void LayerBlocks::reach(std::int32_t number) {
  const c10::InferenceMode off(false);  // passes in either mode may write to the memory
  while (number >= count()) {
    const std::int64_t more = std::max(first_chunk_, count());
    const at::Tensor& chunk = chunks_.emplace_back(
        at::empty({more, size_.bytes}, at::TensorOptions(at::kByte).device(size_.device)));
    auto* const first = static_cast<char*>(chunk.mutable_data_ptr());
    for (std::int64_t i = 0; i < more; ++i) addresses_.push_back(first + i * size_.bytes);
  }
}

at::Tensor LayerBlocks::block(std::int32_t number) const {
  std::int64_t first = 0;
  for (const at::Tensor& chunk : chunks_) {
    if (number < first + chunk.size(0)) return chunk.select(0, number - first);
    first += chunk.size(0);
  }
  throw InternalError("block " + std::to_string(number) + " of " + std::to_string(first));
}

LayerBlocks& CacheMemory::layer(std::string_view path, const BlockSize& size) {
  auto found = layers_.find(path);
  if (found == layers_.end())
    found = layers_.emplace(std::string(path), LayerBlocks(size, num_blocks_)).first;
  MEGATRON_CHECK(found->second.size() == size, "blocks of ", path, " of ", size.bytes,
                 " bytes, which had ", found->second.size().bytes);
  return found->second;
}

const LayerBlocks& CacheMemory::layer(std::string_view path) const {
  const auto found = layers_.find(path);
  MEGATRON_CHECK(found != layers_.end(), "layer ", path, " has no blocks");
  return found->second;
}

void CacheMemory::copy_block(std::int32_t from, std::int32_t to) {
  for (auto& [path, blocks] : layers_) {
    if (from >= blocks.count()) continue;
    blocks.reach(to);
    blocks.block(to).copy_(blocks.block(from));
  }
}

std::int64_t CacheMemory::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [path, blocks] : layers_) bytes += blocks.count() * blocks.size().bytes;
  return bytes;
}

std::int32_t CacheMemory::take_block() {
  if (free_.empty()) {
    free_.push_back(static_cast<std::int32_t>(users_.size()));
    users_.push_back(0);
  }
  const std::int32_t number = free_.back();
  free_.pop_back();
  users(number) = 1;
  return number;
}

void CacheMemory::release(std::int32_t number) {
  if (--users(number) == 0) free_.push_back(number);
}

}  // namespace megatron
