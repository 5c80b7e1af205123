// Writes and reads the wire format of Protocol Buffers, as far as TensorBoard's events and
// SentencePiece's models need it. https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// Builds one message, field by field.
class ProtobufWriter {
 public:
  ProtobufWriter& add_integer(int field, std::uint64_t value);
  ProtobufWriter& add_double(int field, double value);
  ProtobufWriter& add_float(int field, float value);
  /// Adds a string, or the bytes() of a nested message.
  ProtobufWriter& add_bytes(int field, std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  void add_tag(int field, int wire_type);
  void add_varint(std::uint64_t value);
  template <class T>
  void add_fixed(T value);
  std::string bytes_;
};

/// Iterates over the fields of a message. To skip an unknown field, call next() again.
class ProtobufReader {
 public:
  struct FieldValue {
    int field = 0;
    std::uint64_t integer = 0;  ///< value of a varint, or the raw bits of a fixed32 or fixed64
    std::string_view bytes;     ///< value of a length-delimited field
  };
  explicit ProtobufReader(std::string_view message) : rest_(message) {}
  /// Returns the next field; nullopt at the end or where the message is malformed.
  std::optional<FieldValue> next();
  /// Returns whether next() stopped because the message is malformed.
  bool is_malformed() const { return is_malformed_; }

 private:
  /// These return false where the message is malformed.
  bool read_field(FieldValue& value);
  bool varint(std::uint64_t& value);
  template <class T>
  bool fixed(std::uint64_t& value);
  std::string_view rest_;
  bool is_malformed_ = false;
};

}  // namespace megatron
