// Opens data files by path: local ones directly, remote ones through copies in a cache on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "megatron/base/files.h"
#include "megatron/base/storage/http_range_reader.h"
#include "megatron/base/storage/range_reader.h"

namespace megatron {

/// The cache of remote files. The defaults of sizes are those of the settings.
struct StorageOptions {
  fs::path cache_path = {};                              ///< required by remote paths
  std::uint64_t cache_bytes = std::uint64_t{64} << 30;   ///< bound of all chunks together
  std::uint64_t chunk_bytes = std::uint64_t{256} << 20;  ///< part that is copied at once
  RetryOptions retries = {};
};

/// Opens a file for reads at any offset. A remote one is copied in chunks of options.chunk_bytes,
/// at multiples of this size, to `cache_path/chunks`.
std::unique_ptr<RangeReader> open_range_reader(const std::string& path,
                                               const StorageOptions& options);

/// Returns the local path of a file. A remote one is first copied as a whole to the cache folder,
/// under its path without the scheme, unless the copy there has the same version.
fs::path local_copy(const std::string& path, const StorageOptions& options);

}  // namespace megatron
