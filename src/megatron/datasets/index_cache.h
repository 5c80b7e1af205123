// Builds index arrays once, then maps them from disk. It uses megatron-core's file names. Only one
// builder runs at a time, and files are renamed into place.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/index_stamp.h"
#include "megatron/datasets/npy.h"

namespace megatron {

/// Identifies one cache entry, stored in the files
/// `folder/{md5 of description}-{class_name}-{split}-{array name}.npy`, `…-description.txt` as
/// megatron-core writes them, and `…-stamp.json`, which says what the entry was built from.
struct IndexCacheEntry {
  fs::path folder = {};                       ///< empty: the cache is disabled
  std::string class_name = {};                ///< GPTDataset, BlendedDataset, …
  std::string split = {};                     ///< train, valid or test
  std::string description = {};               ///< JSON text
  std::vector<std::string> array_names = {};  ///< document_index, …
  IndexSources sources = {};                  ///< the entry is rebuilt when they have changed
};

using IndexArrays = std::vector<NpyArray>;

/// Returns the arrays from the cache, or from `build` when the entry is missing, damaged, of other
/// sources or rejected by `accept`. Whichever thread or process comes first builds; the others wait
/// for its lock file, and no collective is involved. An entry without a stamp, such as
/// megatron-core's, is used if it is newer than its sources. `warnings` says why an entry that
/// existed was not used, that one was used although a source is newer, that building took another
/// process long, and that the folder is not writable.
IndexArrays load_or_build(const IndexCacheEntry& entry, const std::function<IndexArrays()>& build,
                          const std::function<bool(const IndexArrays&)>& accept,
                          std::vector<std::string>& warnings);

}  // namespace megatron
