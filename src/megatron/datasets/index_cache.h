// Builds index arrays once, then maps them from disk. It uses megatron-core's file names. Only one
// builder runs at a time, and files are renamed into place.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/npy.h"

namespace megatron {

/// Identifies one cache entry, stored in the files
/// `folder/{md5 of description}-{class_name}-{split}-{array name}.npy`.
struct IndexCacheEntry {
  fs::path folder = {};                       ///< empty: the cache is disabled
  std::string class_name = {};                ///< GPTDataset or BlendedDataset
  std::string split = {};                     ///< train, valid or test
  std::string description = {};               ///< JSON text
  std::vector<std::string> array_names = {};  ///< document_index, …
  std::vector<fs::path> sources = {};         ///< the entry is rebuilt when one of them is newer
};

using IndexArrays = std::vector<NpyArray>;

/// Returns the arrays from the cache, or from `build` when the entry is missing, damaged, older
/// than its sources or rejected by `accept`. Concurrent threads and processes build an entry once.
/// When the folder is not writable, it only adds a line to `warnings`.
IndexArrays load_or_build(const IndexCacheEntry& entry, const std::function<IndexArrays()>& build,
                          const std::function<bool(const IndexArrays&)>& accept,
                          std::vector<std::string>& warnings);

}  // namespace megatron
