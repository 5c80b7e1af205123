#include "megatron/ops/cache_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

void LayerBlocks::reach(std::int32_t number) {
  MEGATRON_CHECK(number < max_blocks_, "block ", number, " of at most ", max_blocks_);
  const c10::InferenceMode off(false);  // passes in either mode may write to the memory
  while (number >= count()) {
    const std::int64_t more = std::min(std::max<std::int64_t>(1, count()), max_blocks_ - count());
    const at::Tensor& chunk = chunks_.emplace_back(
        at::empty({more, size_.bytes}, at::TensorOptions(at::kByte).device(size_.device)));
    auto* const first = static_cast<char*>(chunk.mutable_data_ptr());
    for (std::int64_t i = 0; i < more; ++i) addresses_.push_back(first + i * size_.bytes);
  }
}

at::Tensor LayerBlocks::block(std::int32_t number) const {
  MEGATRON_CHECK(number < count(), "block ", number, " of ", count());
  std::int64_t place = number;
  auto chunk = chunks_.begin();
  for (; place >= chunk->size(0); ++chunk) place -= chunk->size(0);
  return chunk->select(0, place);
}

LayerBlocks& CacheMemory::find_or_add(std::string_view path, const BlockSize& size) {
  const auto found = layers_.find(path);
  if (found != layers_.end()) return found->second;
  BlockSize own = size;
  own.device = options_.device.value_or(size.device);
  return layers_.emplace(std::string(path), LayerBlocks(own, options_.max_blocks)).first->second;
}

LayerBlocks& CacheMemory::layer(std::string_view path, const BlockSize& size) {
  LayerBlocks& blocks = find_or_add(path, size);
  MEGATRON_CHECK(blocks.size() == size, "blocks of ", path, " of ", size.bytes,
                 " bytes, which had ", blocks.size().bytes);
  return blocks;
}

void CacheMemory::copy_block(std::int32_t from, CacheMemory& to_memory, std::int32_t to) const {
  for (const auto& [path, blocks] : layers_) {
    if (from >= blocks.count()) continue;
    LayerBlocks& target = to_memory.find_or_add(path, blocks.size());
    target.reach(to);
    target.block(to).copy_(blocks.block(from));
  }
}

}  // namespace megatron
