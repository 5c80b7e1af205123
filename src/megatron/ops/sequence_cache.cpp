#include "megatron/ops/sequence_cache.h"

#include <utility>

namespace megatron {
namespace {

std::size_t blocks_for(std::int64_t positions) {
  return static_cast<std::size_t>((positions + kBlockPositions - 1) / kBlockPositions);
}

}  // namespace

SequenceCache& SequenceCache::operator=(SequenceCache&& other) noexcept {
  std::swap(length, other.length);
  std::swap(blocks, other.blocks);
  std::swap(memory_, other.memory_);
  std::swap(takes_blocks_, other.takes_blocks_);
  std::swap(layers_, other.layers_);
  return *this;
}

SequenceCache::~SequenceCache() {
  if (!takes_blocks_) return;
  for (const std::int32_t block : blocks) memory_->release(block);
}

SequenceCache SequenceCache::fork() const {
  SequenceCache copy(memory_);
  copy.takes_blocks_ = takes_blocks_;
  copy.length = length;
  for (std::size_t i = 0; i < blocks_for(length); ++i) {
    copy.blocks.push_back(blocks[i]);
    if (takes_blocks_) memory_->retain(blocks[i]);
  }
  for (const auto& [layer, kept] : layers_)
    copy.layers_.emplace(layer, Kept{kept.copy(*kept.cache), kept.copy});
  return copy;
}

void SequenceCache::prepare(std::int64_t count) {
  const std::size_t end = blocks_for(length + count);
  if (!takes_blocks_) {
    MEGATRON_CHECK(blocks.size() >= end, blocks.size(), " blocks for ", length + count, " tokens");
    return;
  }
  for (auto i = static_cast<std::size_t>(length / kBlockPositions); i < end; ++i) {
    if (i == blocks.size()) {
      blocks.push_back(memory_->take_block());
    } else if (memory_->is_shared(blocks[i])) {
      const std::int32_t own = memory_->take_block();
      memory_->copy_block(blocks[i], own);
      memory_->release(std::exchange(blocks[i], own));
    }
  }
}

}  // namespace megatron
