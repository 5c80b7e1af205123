// safetensors files (docs/formats/safetensors.md): a JSON header and one run of bytes. The reader
// maps the file and validates it whole; the writer streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/checkpoint/safetensors_dtype.h"
#include "megatron/params/sharding.h"

namespace megatron {

struct StoredTensor {
  std::string name = {};
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};
  std::uint64_t begin = 0, end = 0;  ///< bytes after the header

  std::uint64_t num_bytes() const { return end - begin; }
};

/// A mapped file. Construction checks everything: header length, JSON, names, dtypes, shapes,
/// offsets without holes or overlaps, size.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  /// Ascending in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;
  /// Valid as long as this object. Aligned to the element only when the writer saw to it.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const {
    return data_.subspan(tensor.begin, tensor.num_bytes());
  }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// What lies before the data: length and JSON.
  std::span<const std::byte> header_bytes() const {
    return file_.bytes().first(file_.size() - data_.size());
  }

 private:
  MappedFile file_;
  std::span<const std::byte> data_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// What a file will hold; the writer assigns the offsets.
struct TensorHeader {
  std::string name = {};
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};

  std::uint64_t num_bytes() const;
};

/// Writes the header at once, then takes the tensors' bytes one by one in `order()`: larger
/// elements first, so that every tensor is aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const fs::path& path, std::vector<TensorHeader> headers,
                    const std::map<std::string, std::string>& metadata = {},
                    FileSystem& files = default_file_system());

  const std::vector<TensorHeader>& order() const { return headers_; }
  /// Checksum of what lies before the data.
  std::uint64_t header_checksum() const { return header_checksum_; }
  /// The bytes of the next tensor of order(), whole.
  void write(std::span<const std::byte> bytes);
  /// Flushes to the disk; call after the last tensor.
  void close();

 private:
  std::vector<TensorHeader> headers_;
  FileWriter writer_;
  std::uint64_t header_checksum_ = 0;
  std::size_t next_ = 0;
};

/// Sorts headers as a writer would, so that a caller can prepare its data in that order.
void sort_for_writing(std::vector<TensorHeader>& headers);

}  // namespace megatron
