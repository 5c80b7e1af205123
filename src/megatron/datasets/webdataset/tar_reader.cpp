#include "megatron/datasets/webdataset/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::uint64_t kLongestExtension = 1 << 20;  ///< bytes of a long name or of pax records
constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 62;

// Offsets and sizes of the fields of a header.
constexpr std::size_t kName = 0, kNameBytes = 100, kSize = 124, kSizeBytes = 12, kSum = 148,
                      kSumBytes = 8, kType = 156, kMagic = 257, kPrefix = 345, kPrefixBytes = 155;

template <class Block>
std::string text_field(const Block& block, std::size_t begin, std::size_t size) {
  const auto first = block.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, std::find(first, first + static_cast<std::ptrdiff_t>(size), '\0')};
}

template <class Block>
std::string full_name(const Block& block) {
  const std::string name = text_field(block, kName, kNameBytes);
  const bool is_ustar =
      std::string_view(block.data() + kMagic, 6) == std::string_view("ustar\0", 6);
  const std::string prefix = is_ustar ? text_field(block, kPrefix, kPrefixBytes) : "";
  return prefix.empty() ? name : prefix + "/" + name;
}

/// Returns whether a header describes the one that follows it: pax records, those of the whole
/// archive, and GNU's long names and link targets.
bool is_extension(char type) {
  return type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K';
}

}  // namespace

TarReader::TarReader(const RangeReader& file, std::uint64_t offset)
    : file_(file), offset_(offset) {}

void TarReader::damaged(const std::string& what, const std::string& got) const {
  throw UserError({file_.name() + ": " + what + " at offset " + std::to_string(offset_), got,
                   "make the archive again, or copy it again"});
}

TarReader::Block TarReader::read_block() const {
  if (offset_ == file_.size())
    damaged("the archive ends without its last block, so it may be cut short");
  if (file_.size() < kBlockBytes || offset_ > file_.size() - kBlockBytes)
    damaged("the archive is cut short within a header");
  Block block;
  file_.read(offset_, std::as_writable_bytes(std::span(block)));
  return block;
}

/// The sum counts the field of the sum as spaces. Some programs added signed characters.
void TarReader::check_sum(const Block& block) const {
  std::int64_t sum = 0, signed_sum = 0;
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    const char c = i >= kSum && i < kSum + kSumBytes ? ' ' : block[i];
    sum += static_cast<unsigned char>(c);
    signed_sum += static_cast<signed char>(c);
  }
  const auto held = static_cast<std::int64_t>(parse_number(block, kSum, kSumBytes, "checksum"));
  if (held != sum && held != signed_sum)
    damaged("the checksum of a header is wrong",
            std::to_string(held) + " instead of " + std::to_string(sum));
}

/// Parses octal digits, or the big-endian number of GNU tar, whose first bit is set.
std::uint64_t TarReader::parse_number(const Block& block, std::size_t begin, std::size_t size,
                                      const char* field) const {
  const std::string_view text(block.data() + begin, size);
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(text[0]) & 0x80) != 0) {
    for (std::size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<unsigned char>(i == 0 ? text[0] & 0x7f : text[i]);
      if (value >= kLargestSize >> 8)
        damaged(std::string("the field '") + field + "' of a header is negative or too large");
      value = value << 8 | byte;
    }
    return value;
  }
  std::string_view digits = text.substr(0, text.find('\0'));
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, /*base=*/8);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    damaged(std::string("the field '") + field + "' of a header is not an octal number");
  return value;
}

/// Returns the data of a header that describes the next one.
std::string TarReader::read_extension(std::uint64_t size) const {
  if (size > kLongestExtension)
    damaged("a name is too long", std::to_string(size) + " bytes; at most " +
                                      std::to_string(kLongestExtension) + " are read");
  const std::uint64_t begin = offset_ + kBlockBytes;
  if (size > file_.size() - begin) damaged("the archive is cut short within a name");
  std::string text(size, '\0');
  file_.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Parses records "length key=value\n", where the length counts the whole record.
void TarReader::parse_pax(const std::string& records, Overrides& overrides) const {
  std::string_view rest = records;
  while (!rest.empty() && rest[0] != '\0') {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    if (error != std::errc() || length > rest.size() || length < digits + 3 ||
        rest[digits] != ' ' || rest[length - 1] != '\n')
      damaged("a pax record is damaged");
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) damaged("a pax record is damaged");
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") overrides.name = std::string(value);
    if (key.starts_with("GNU.sparse")) damaged("sparse files are not supported");
    if (key == "size") {
      std::uint64_t size = 0;
      const auto [stop, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (wrong != std::errc() || stop != value.data() + value.size())
        damaged("a pax record 'size' is not a number");
      overrides.size = size;
    }
    rest.remove_prefix(length);
  }
}

/// Goes on behind a header and its data, which fill whole blocks.
void TarReader::skip(std::uint64_t data_bytes) {
  const std::uint64_t left = file_.size() - offset_ - kBlockBytes;
  if (data_bytes > left)
    damaged("the archive is cut short within a file",
            std::to_string(left) + " of " + std::to_string(data_bytes) + " bytes are there");
  const std::uint64_t blocks = (data_bytes + kBlockBytes - 1) / kBlockBytes;
  offset_ = std::min(offset_ + (1 + blocks) * kBlockBytes, file_.size());
}

std::optional<TarMember> TarReader::next() {
  Overrides overrides;
  std::uint64_t first_header = offset_;
  for (;;) {
    const Block block = read_block();
    if (std::all_of(block.begin(), block.end(), [](char c) { return c == '\0'; })) {
      if (first_header != offset_) damaged("no file follows its long name");
      return std::nullopt;
    }
    check_sum(block);
    const char type = block[kType];
    const std::uint64_t size = parse_number(block, kSize, kSizeBytes, "size");
    if (is_extension(type)) {
      const std::string text = read_extension(size);
      if (type == 'x' || type == 'X') parse_pax(text, overrides);
      if (type == 'L') overrides.name = text.substr(0, text.find('\0'));
      skip(size);
      continue;
    }
    if (type == 'S') damaged("sparse files are not supported");
    TarMember member{.name = overrides.name ? *overrides.name : full_name(block),
                     .header_offset = first_header,
                     .data_offset = offset_ + kBlockBytes,
                     .size = overrides.size.value_or(size)};
    // Links, devices, folders and pipes have no data, whatever their size says.
    skip(type < '1' || type > '6' ? member.size : 0);
    if (type == '0' || type == '7' || (type == '\0' && !member.name.ends_with("/"))) return member;
    overrides = {};
    first_header = offset_;
  }
}

}  // namespace megatron
