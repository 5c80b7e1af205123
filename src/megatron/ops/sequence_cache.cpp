#include "megatron/ops/sequence_cache.h"

#include <algorithm>
#include <utility>

#include "megatron/base/division.h"

namespace megatron {
namespace {

std::size_t blocks_for(std::int64_t positions) {
  return static_cast<std::size_t>(ceil_div(positions, kBlockPositions));
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
  // Without a layer that writes blocks there are none.
  for (std::size_t i = 0; i < std::min(blocks.size(), blocks_for(length)); ++i) {
    copy.blocks.push_back(blocks[i]);
    if (takes_blocks_) memory_->retain(blocks[i]);
  }
  copy.copy_states(*this);
  return copy;
}

void SequenceCache::copy_states(const SequenceCache& from) {
  layers_.clear();
  for (const auto& [layer, kept] : from.layers_)
    layers_.emplace(layer, Kept{kept.copy(*kept.cache), kept.copy});
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
