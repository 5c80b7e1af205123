// Reads a local file with pread.
#pragma once

#include "megatron/base/files.h"
#include "megatron/base/storage/range_reader.h"

namespace megatron {

class LocalRangeReader : public RangeReader {
 public:
  explicit LocalRangeReader(fs::path path);

  std::string name() const override { return path_.string(); }
  std::uint64_t size() const override { return size_; }
  std::string version() const override { return version_; }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

 private:
  fs::path path_;
  Descriptor descriptor_;
  std::uint64_t size_ = 0;
  std::string version_;  ///< size and time of the last change
};

/// Fills `bytes` from `offset` of an open file. Throws a UserError that names `path` on failure,
/// also when the file is too short.
void read_at(int descriptor, const fs::path& path, std::uint64_t offset,
             std::span<std::byte> bytes);

}  // namespace megatron
