// Index arrays that are built once and then mapped from disk: megatron-core's file names, one
// builder at a time, renamed into place.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/npy.h"

namespace megatron {

/// What identifies one cache entry: the files `folder/{md5 of
/// description}-{class_name}-{split}-{array name}.npy`.
struct IndexCacheEntry {
  fs::path folder = {};                       ///< empty: nothing is cached
  std::string class_name = {};                ///< GPTDataset or BlendedDataset
  std::string split = {};                     ///< train, valid or test
  std::string description = {};               ///< JSON text
  std::vector<std::string> array_names = {};  ///< document_index, …
  std::vector<fs::path> sources = {};  ///< an entry older than one of these files is built again
};

using IndexArrays = std::vector<NpyArray>;

/// The arrays from the cache, or from `build` when the entry is absent, broken, older than its
/// sources or refused by `accept`. Concurrent callers, in threads or processes, build an entry
/// once. A folder that cannot be written adds a line to `warnings`, nothing more.
IndexArrays load_or_build(const IndexCacheEntry& entry, const std::function<IndexArrays()>& build,
                          const std::function<bool(const IndexArrays&)>& accept,
                          std::vector<std::string>& warnings);

}  // namespace megatron
