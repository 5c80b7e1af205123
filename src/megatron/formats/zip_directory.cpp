#include "megatron/formats/zip_directory.h"

#include <zlib.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/formats/pickle.h"

namespace megatron {
namespace {

constexpr std::uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50,
                        kEntry = 0x02014b50, kLocal = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30,
                        kLongestComment = 0xFFFF;

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(bytes), source_(source) {}

  std::map<std::string, ByteRange> read() {
    std::uint64_t end = end_record(), count = number<std::uint16_t>(end + 10),
                  at = number<std::uint32_t>(end + 16);
    if (end >= kLocatorBytes && number<std::uint32_t>(end - kLocatorBytes) == kLocator64) {
      end = number<std::uint64_t>(end - kLocatorBytes + 8);
      require(number<std::uint32_t>(end) == kEnd64, "its end is damaged");
      count = number<std::uint64_t>(end + 32);
      at = number<std::uint64_t>(end + 48);
    }
    std::map<std::string, ByteRange> records;
    for (; count > 0; --count) {
      require(number<std::uint32_t>(at) == kEntry, "its directory is damaged");
      const std::uint64_t name_size = number<std::uint16_t>(at + 28),
                          extra_size = number<std::uint16_t>(at + 30),
                          comment_size = number<std::uint16_t>(at + 32);
      const std::string name = text(at + kEntryBytes, name_size);
      const bool is_new = records.emplace(name, record(at, name, extra_size)).second;
      require(is_new, "it has the record " + quoted_text(name) + " twice");
      at += kEntryBytes + name_size + extra_size + comment_size;
    }
    return records;
  }

 private:
  void require(bool condition, const std::string& what) const {
    if (!condition)
      throw UserError({source_ + ": not a zip archive that PyTorch writes", what,
                       "the file is damaged or not complete: copy it again"});
  }
  template <class Number>
  Number number(std::uint64_t at) const {
    const auto value = number_at<Number>(bytes_, at);
    require(value.has_value(), "its directory lies outside of it");
    return *value;
  }
  std::string text(std::uint64_t at, std::uint64_t size) const {
    require(size <= bytes_.size() && at <= bytes_.size() - size, "a name lies outside of it");
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }

  /// Returns where the record that ends the archive begins. A comment may follow it.
  std::uint64_t end_record() const {
    require(bytes_.size() >= kEndBytes, "it is too short");
    const std::uint64_t last = bytes_.size() - kEndBytes,
                        first = last - std::min(last, kLongestComment);
    for (std::uint64_t at = last + 1; at-- > first;)
      if (number<std::uint32_t>(at) == kEnd && at + number<std::uint16_t>(at + 20) == last)
        return at;
    require(false, "its end is missing");
    return 0;
  }

  /// Returns the bytes of the record with the directory's entry at `at`.
  ByteRange record(std::uint64_t at, const std::string& name, std::uint64_t extra_size) const {
    std::uint64_t values[] = {number<std::uint32_t>(at + 24), number<std::uint32_t>(at + 20),
                              number<std::uint32_t>(at + 42)};
    // Values that need 64 bits are in an extra field, in this order.
    std::uint64_t extra = at + kEntryBytes + name.size();
    const std::uint64_t end = extra + extra_size;
    while (extra + 4 <= end && number<std::uint16_t>(extra) != 1)
      extra += 4 + number<std::uint16_t>(extra + 2);
    extra += 4;
    for (std::uint64_t& value : values) {
      if (value != UINT32_MAX || extra + 8 > end) continue;
      value = number<std::uint64_t>(extra);
      extra += 8;
    }
    const auto [size, stored_size, header] = values;
    const bool is_stored = number<std::uint16_t>(at + 10) == 0 && size == stored_size &&
                           (number<std::uint16_t>(at + 8) & 1) == 0;
    require(is_stored, "its record " + quoted_text(name) + " is compressed or encrypted");
    require(number<std::uint32_t>(header) == kLocal,
            "its record " + quoted_text(name) + " has no header");
    const std::uint64_t begin = header + kLocalBytes + number<std::uint16_t>(header + 26) +
                                number<std::uint16_t>(header + 28);
    require(begin <= bytes_.size() && size <= bytes_.size() - begin,
            "its record " + quoted_text(name) + " ends behind it");
    return {begin, begin + size};
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
};

}  // namespace

std::map<std::string, ByteRange> read_zip_directory(std::span<const std::byte> bytes,
                                                    const std::string& source) {
  return ZipReader(bytes, source).read();
}

void write_zip(FileWriter& file,
               std::span<const std::pair<std::string, std::span<const std::byte>>> records) {
  using U16 = std::uint16_t;
  constexpr U16 kVersion = 45, kUtf8Names = 0x800, kDate = 0x21, k0 = 0;
  constexpr U16 kSizesField = 1, kPaddingField = 0x4246;  // of extra data; PyTorch's is the second
  constexpr std::uint32_t kInExtra = UINT32_MAX, kNone = 0;
  constexpr std::uint64_t kAlignment = 64, kLocalExtraBytes = 24, kEnd64Bytes = 44;
  const std::uint64_t origin = file.position();
  std::string directory;
  for (const auto& [name, bytes] : records) {
    const std::uint64_t begin = file.position() - origin, size = bytes.size(),
                        end = begin + kLocalBytes + name.size() + kLocalExtraBytes,
                        padding = (kAlignment - end % kAlignment) % kAlignment;
    const auto crc = static_cast<std::uint32_t>(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
    // In both headers: version, flags, method, time, date, CRC, sizes, length of the name.
    const std::string common = number_bytes(kVersion, kUtf8Names, k0, k0, kDate, crc, kInExtra,
                                            kInExtra, static_cast<U16>(name.size()));
    file.write(
        number_bytes(kLocal) + common + number_bytes(static_cast<U16>(kLocalExtraBytes + padding)) +
        name +
        number_bytes(kSizesField, U16{16}, size, size, kPaddingField, static_cast<U16>(padding)) +
        std::string(padding, 'Z'));
    file.write_values(bytes);
    directory += number_bytes(kEntry, kVersion) + common +
                 number_bytes(U16{28}, k0, k0, k0, kNone, kInExtra) + name +
                 number_bytes(kSizesField, U16{24}, size, size, begin);
  }
  const std::uint64_t begin = file.position() - origin, size = directory.size(),
                      count = records.size();
  file.write(directory +
             number_bytes(kEnd64, kEnd64Bytes, kVersion, kVersion, kNone, kNone, count, count, size,
                          begin) +
             number_bytes(kLocator64, kNone, begin + size, std::uint32_t{1}) +
             number_bytes(kEnd, k0, k0, U16{UINT16_MAX}, U16{UINT16_MAX}, kInExtra, kInExtra, k0));
}

}  // namespace megatron
