// Reads and writes zip archives whose records are stored as they are.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace megatron {

class FileWriter;

/// Bytes [begin, end) of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

/// Returns the little-endian number at `offset`; nullopt if it does not lie in `bytes`.
template <class Number>
std::optional<Number> number_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Number)) return std::nullopt;
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

/// Returns the little-endian bytes of numbers, one after the other.
template <class... Number>
std::string number_bytes(Number... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  return bytes;
}

/// Returns where in `bytes` the records of the archive lie, by name. Throws a UserError that names
/// `source` if it is damaged, or if a record is compressed or encrypted.
std::map<std::string, ByteRange> read_zip_directory(std::span<const std::byte> bytes,
                                                    const std::string& source);

/// Appends an archive of records, given by name, to `file`. Each has its CRC-32 and sizes of 64
/// bits, and begins at a multiple of 64 bytes of the archive, so that its tensors can be mapped.
void write_zip(FileWriter& file,
               std::span<const std::pair<std::string, std::span<const std::byte>>> records);

}  // namespace megatron
