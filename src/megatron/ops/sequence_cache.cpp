#include "megatron/ops/sequence_cache.h"

#include <numeric>

namespace megatron {

SequenceCache::SequenceCache() : blocks(1024), memory_(std::make_shared<CacheMemory>()) {
  std::iota(blocks.begin(), blocks.end(), 0);
}

SequenceCache SequenceCache::fork() const {
  SequenceCache copy(memory_);
  copy.length = length;
  copy.num_encoded = num_encoded;
  copy.blocks = blocks;
  copy.copy_states(*this);
  return copy;
}

void SequenceCache::copy_states(const SequenceCache& from) {
  layers_.clear();
  for (const auto& [layer, kept] : from.layers_)
    layers_.emplace(layer, Kept{kept.copy(*kept.cache), kept.copy});
}

double SequenceCache::state_bytes() const {
  double bytes = 0;
  for (const auto& [layer, kept] : layers_) bytes += kept.cache->num_bytes();
  return bytes;
}

}  // namespace megatron
