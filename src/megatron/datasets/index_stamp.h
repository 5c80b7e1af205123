// Records what an index cache was built from, so that its validity does not depend on clocks:
// file times of several hosts and file systems cannot be compared with each other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/files.h"

namespace megatron {

/// Size and time of a file. Unchanged ones mean unchanged contents, but for files that are younger
/// than the resolution of their times.
struct FileStamp {
  std::int64_t bytes = 0, time_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
/// Returns nullopt if the file does not exist or cannot be asked.
std::optional<FileStamp> file_stamp(const fs::path& file);

/// What determines an index.
struct IndexSources {
  std::vector<fs::path> files = {};  ///< unchanged files (size and time) mean unchanged contents
  /// Returns a checksum of the contents that the index depends on. Called when a file's size or
  /// time differs, and when an index is built.
  std::function<std::uint64_t()> checksum = {};
};

/// Returns the stamp of an index: JSON text with size and time of every source, the checksum of
/// the contents, and size and ends of every array file.
std::string make_index_stamp(const IndexSources& sources, const std::vector<fs::path>& arrays);

/// Returns why an index with this stamp cannot be used; nullopt if it can. Sources whose time has
/// changed are compared by their contents.
std::optional<std::string> index_stamp_mismatch(const std::string& stamp,
                                                const IndexSources& sources,
                                                const std::vector<fs::path>& arrays);

}  // namespace megatron
