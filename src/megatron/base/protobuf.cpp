#include "megatron/base/protobuf.h"

#include <bit>
#include <cstring>

namespace megatron {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
static_assert(std::endian::native == std::endian::little);

}  // namespace

void ProtobufWriter::add_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void ProtobufWriter::add_tag(int field, int wire_type) {
  add_varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type));
}

template <class T>
void ProtobufWriter::add_fixed(T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes_.append(raw, sizeof value);
}

ProtobufWriter& ProtobufWriter::add_integer(int field, std::uint64_t value) {
  add_tag(field, kVarint);
  add_varint(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::add_double(int field, double value) {
  add_tag(field, kFixed64);
  add_fixed(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::add_float(int field, float value) {
  add_tag(field, kFixed32);
  add_fixed(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::add_bytes(int field, std::string_view value) {
  add_tag(field, kLengthDelimited);
  add_varint(value.size());
  bytes_ += value;
  return *this;
}

bool ProtobufReader::varint(std::uint64_t& value) {
  if (!rest_.empty() && static_cast<unsigned char>(rest_.front()) < 0x80) {  // most are one byte
    value = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return true;
  }
  value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

template <class T>
bool ProtobufReader::fixed(std::uint64_t& value) {
  T number = 0;
  if (rest_.size() < sizeof number) return false;
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): there are that many bytes.
  std::memcpy(&number, rest_.data(), sizeof number);
  rest_.remove_prefix(sizeof number);
  value = number;
  return true;
}

std::optional<ProtobufReader::FieldValue> ProtobufReader::next() {
  std::optional<FieldValue> value;
  if (rest_.empty()) return value;
  if (!read_field(value.emplace())) {
    value.reset();
    is_malformed_ = true;
  }
  return value;
}

bool ProtobufReader::read_field(FieldValue& value) {
  std::uint64_t tag = 0;
  if (!varint(tag)) return false;
  value.field = static_cast<int>(tag >> 3);
  switch (static_cast<int>(tag & 7)) {
    case kVarint:
      return varint(value.integer);
    case kFixed64:
      return fixed<std::uint64_t>(value.integer);
    case kFixed32:
      return fixed<std::uint32_t>(value.integer);
    case kLengthDelimited:
      if (!varint(value.integer) || value.integer > rest_.size()) return false;
      value.bytes = rest_.substr(0, value.integer);
      rest_.remove_prefix(value.integer);
      return true;
    default:
      return false;
  }
}

}  // namespace megatron
