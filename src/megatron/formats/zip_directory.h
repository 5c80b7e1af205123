// Finds the records of a zip archive. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace megatron {

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

/// Returns where in `bytes` the records of the archive lie, by name. Throws a UserError that names
/// `source` if it is damaged, or if a record is compressed or encrypted.
std::map<std::string, ByteRange> read_zip_directory(std::span<const std::byte> bytes,
                                                    const std::string& source);

}  // namespace megatron
