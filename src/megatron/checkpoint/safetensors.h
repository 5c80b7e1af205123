// Reads and writes safetensors files (docs/formats/safetensors.md): a JSON header and one run of
// bytes. The reader maps the file and validates all of it; the writer streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/params/sharding.h"

namespace megatron {

/// Element types of tensors in files, with their safetensors names.
enum class SafetensorsDtype {
  BOOL,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64
};

std::string_view safetensors_dtype_name(SafetensorsDtype type);
/// Returns nullopt for an unknown name.
std::optional<SafetensorsDtype> parse_safetensors_dtype(std::string_view name);
/// Returns the size of an element in bytes.
std::uint64_t element_size(SafetensorsDtype type);

struct StoredTensor {
  std::string name = {};
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};
  std::uint64_t begin = 0, end = 0;  ///< byte offsets from the end of the header

  std::uint64_t num_bytes() const { return end - begin; }
};

/// A memory-mapped file. The constructor checks header length, JSON, names, dtypes, shapes, offsets
/// (no holes, no overlaps) and size.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  /// Returns the tensors in file order.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns null when there is no tensor of that name.
  const StoredTensor* find(std::string_view name) const;
  /// Returns a view that is valid as long as this object. It is aligned to the element size only if
  /// the writer aligned it.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const {
    return data_.subspan(tensor.begin, tensor.num_bytes());
  }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Returns the bytes before the data: header length and JSON.
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

/// A tensor that a file will hold. The writer assigns the offsets.
struct TensorHeader {
  std::string name = {};
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};

  std::uint64_t num_bytes() const;
};

/// Returns the bytes of a file before its data: the length and the JSON. `headers` are in the order
/// of the data.
std::string safetensors_header(const std::vector<TensorHeader>& headers,
                               const std::map<std::string, std::string>& metadata);

/// Writes the header at once, then takes the tensors' bytes one by one in `order()`. Larger element
/// types come first, so that every tensor is aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const fs::path& path, std::vector<TensorHeader> headers,
                    const std::map<std::string, std::string>& metadata = {},
                    FileSystem& files = default_file_system());

  const std::vector<TensorHeader>& order() const { return headers_; }
  /// Returns the checksum of the bytes before the data.
  std::uint64_t header_checksum() const { return header_checksum_; }
  /// Writes all bytes of the next tensor of order().
  void write(std::span<const std::byte> bytes);
  /// Flushes the file to the disk. Call it after the last tensor.
  void close();

 private:
  std::vector<TensorHeader> headers_;
  FileWriter writer_;
  std::uint64_t header_checksum_ = 0;
  std::size_t next_ = 0;
};

/// Sorts headers as the writer does, so that a caller can prepare its data in that order.
void sort_for_writing(std::vector<TensorHeader>& headers);

}  // namespace megatron
