// The memory of paged KV caches. A block is kBlockPositions positions of a sequence; its number is
// the same in all layers, and any sequence may use any blocks. What a block contains is up to the
// layer (kv_cache.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/type.h"

namespace megatron {

using kernels::KvCacheType;

/// Number of positions of a block.
inline constexpr std::int64_t kBlockPositions = 128;

/// What a layer keeps of a block.
struct BlockSize {
  std::int64_t bytes = 0;
  std::int64_t elements_per_token = 0;  ///< keys and values, without padding
  at::Device device = at::kCPU;
  bool operator==(const BlockSize&) const = default;
};

/// The blocks of one layer. They are contiguous and stay where they are, aligned to 64 bytes, with
/// any contents at first.
class LayerBlocks {
 public:
  /// The memory doubles when it must grow, to at most `max_blocks` blocks.
  LayerBlocks(const BlockSize& size, std::int64_t max_blocks)
      : size_(size), max_blocks_(max_blocks) {}

  const BlockSize& size() const { return size_; }
  /// Allocates blocks up to `number`, which is less than `max_blocks`.
  void reach(std::int32_t number);
  /// Returns the addresses of the blocks by number. reach() may move this table.
  char* const* addresses() const { return addresses_.data(); }
  /// Returns a block: uint8 [size().bytes].
  at::Tensor block(std::int32_t number) const;
  std::int64_t count() const { return std::ssize(addresses_); }

 private:
  BlockSize size_;
  std::int64_t max_blocks_;
  std::vector<at::Tensor> chunks_;  ///< uint8 [blocks, size_.bytes]
  std::vector<char*> addresses_;
};

struct CacheMemoryOptions {
  std::int64_t max_blocks = std::numeric_limits<std::int32_t>::max();  ///< of each layer
  std::optional<at::Device> device = {};  ///< of the blocks; nullopt: where the layers compute
  KvCacheType type = KvCacheType::same;   ///< 8 bits need our CPU kernels
};

/// The blocks of all layers of this rank. Not thread-safe.
class CacheMemory {
 public:
  explicit CacheMemory(const CacheMemoryOptions& options = {}) : options_(options) {}

  KvCacheType type() const { return options_.type; }
  /// Returns the blocks of a layer by its path in the model, which its first call creates.
  /// InternalError when the size differs from that of the first call.
  LayerBlocks& layer(std::string_view path, const BlockSize& size);
  /// Returns the layers that have been used.
  const std::map<std::string, LayerBlocks, std::less<>>& layers() const { return layers_; }
  /// Copies a block in every layer, to this memory or another of the same layers.
  void copy_block(std::int32_t from, CacheMemory& to_memory, std::int32_t to) const;

 private:
  /// Returns the blocks of a layer, which are new if there are none.
  LayerBlocks& find_or_add(std::string_view path, const BlockSize& size);

  CacheMemoryOptions options_;
  std::map<std::string, LayerBlocks, std::less<>> layers_;
};

}  // namespace megatron
