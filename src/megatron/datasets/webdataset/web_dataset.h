// Samples of files with a common name in tar archives (WebDataset): image-text pairs and the like.
// Format: https://github.com/webdataset/webdataset
//
//   WebDataset dataset(expand_shard_names("images-{000..123}.tar"), {}, warnings);
//   const WebSample sample = dataset.sample(7);  // sample.key, sample.fields
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/storage/remote_storage.h"
#include "megatron/datasets/npy.h"

namespace megatron {

/// A file of a sample.
struct WebField {
  std::string name;  ///< the extension in lower case: what follows the first dot of the file's name
  std::uint64_t size = 0;
  std::string bytes = {};  ///< empty if only the size was asked for
};

/// The files of one shard that follow each other and have the same name up to its first dot.
struct WebSample {
  std::string key;  ///< folder and name up to the first dot
  std::string shard;
  std::vector<WebField> fields;  ///< in the order of the archive
};

struct WebDatasetOptions {
  StorageOptions storage = {};    ///< of remote shards
  std::string cache_folder = {};  ///< of the shards' indices; empty: a folder beside each shard
  bool cache = true;              ///< keeps the indices on disk
};

/// Random access to the samples of shards. For each shard there is an index of the offsets at which
/// samples begin. It is made once, by one process. Thread-safe.
class WebDataset {
 public:
  /// Loads or makes the index of every shard. `warnings` says which could not be kept. Throws a
  /// UserError that names file and offset for an archive that is damaged, cut short or contains a
  /// field of a sample twice.
  WebDataset(std::vector<std::string> shards, const WebDatasetOptions& options,
             std::vector<std::string>& warnings);

  std::int64_t size() const { return begins_.back(); }
  const std::vector<std::string>& shards() const { return shards_; }
  /// Returns the number of samples of a shard.
  std::int64_t shard_size(std::size_t shard) const { return begins_[shard + 1] - begins_[shard]; }
  /// Returns the size of a shard's file in bytes.
  std::uint64_t shard_bytes(std::size_t shard) const { return files_[shard]->size(); }

  /// Returns a sample with its contents; 0 ≤ index < size(), in the order of shards and archives.
  WebSample sample(std::int64_t index) const { return read(index, /*with_bytes=*/true); }
  /// Returns a sample without the contents of its fields.
  WebSample describe(std::int64_t index) const { return read(index, /*with_bytes=*/false); }

 private:
  WebSample read(std::int64_t index, bool with_bytes) const;
  NpyArray load_index(std::size_t shard, const WebDatasetOptions& options,
                      std::vector<std::string>& warnings) const;

  std::vector<std::string> shards_;
  std::vector<std::unique_ptr<RangeReader>> files_;
  std::vector<NpyArray> indices_;     ///< per shard, the offsets of its samples and of its end
  std::vector<std::int64_t> begins_;  ///< per shard, its first sample; then the number of samples
};

/// Splits the name of a file into key and field as the webdataset package does; nullopt for names
/// that belong to no sample.
std::optional<std::pair<std::string, std::string>> split_member_name(const std::string& name);

}  // namespace megatron
