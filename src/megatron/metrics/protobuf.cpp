#include "megatron/metrics/protobuf.h"

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

std::optional<std::uint64_t> ProtobufReader::varint() {
  if (!rest_.empty() && static_cast<unsigned char>(rest_.front()) < 0x80) {  // most are one byte
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

template <class T>
std::optional<std::uint64_t> ProtobufReader::fixed() {
  T value = 0;
  if (rest_.size() < sizeof value) return std::nullopt;
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): there are that many bytes.
  std::memcpy(&value, rest_.data(), sizeof value);
  rest_.remove_prefix(sizeof value);
  return value;
}

std::optional<ProtobufReader::FieldValue> ProtobufReader::next() {
  if (rest_.empty()) return std::nullopt;
  auto field = next_field();
  if (!field) is_malformed_ = true;
  return field;
}

std::optional<ProtobufReader::FieldValue> ProtobufReader::next_field() {
  const auto tag = varint();
  if (!tag) return std::nullopt;
  FieldValue value{.field = static_cast<int>(*tag >> 3)};
  const int wire_type = static_cast<int>(*tag & 7);
  if (wire_type != kVarint && wire_type != kFixed64 && wire_type != kLengthDelimited &&
      wire_type != kFixed32)
    return std::nullopt;
  const auto number = wire_type == kFixed64   ? fixed<std::uint64_t>()
                      : wire_type == kFixed32 ? fixed<std::uint32_t>()
                                              : varint();
  if (!number) return std::nullopt;
  value.integer = *number;
  if (wire_type != kLengthDelimited) return value;
  if (*number > rest_.size()) return std::nullopt;
  value.bytes = rest_.substr(0, *number);
  rest_.remove_prefix(*number);
  return value;
}

}  // namespace megatron
