#include "megatron/datasets/npy.h"

#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {
namespace {

struct NpyTypeInfo {
  NpyType type;
  std::string_view description;
  std::int64_t size;
};
constexpr NpyTypeInfo kTypes[] = {{NpyType::int16, "<i2", 2},
                                  {NpyType::int32, "<i4", 4},
                                  {NpyType::int64, "<i8", 8},
                                  {NpyType::uint32, "<u4", 4}};
constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

const NpyTypeInfo& facts(NpyType type) { return kTypes[static_cast<int>(type)]; }

[[noreturn]] void throw_damaged_file(const fs::path& path, const std::string& what,
                                     const std::string& got = "") {
  throw UserError(
      {path.string() + ": " + what, got, "delete the file; index caches are built again"});
}

/// Returns the text of the value that follows 'key': in the header's Python dictionary.
std::string_view header_value(std::string_view header, std::string_view key, const fs::path& path) {
  const std::string quoted = "'" + std::string(key) + "':";
  const auto found = header.find(quoted);
  if (found == std::string_view::npos)
    throw_damaged_file(path, "header has no field '" + std::string(key) + "'");
  std::string_view rest = header.substr(found + quoted.size());
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const char closing = rest.starts_with('(') ? ')' : ',';
  const auto end = rest.find(closing);
  if (end == std::string_view::npos)
    throw_damaged_file(path, "header field '" + std::string(key) + "' does not end");
  return rest.substr(0, end);
}

std::vector<std::int64_t> parse_shape(std::string_view text, const fs::path& path) {
  std::vector<std::int64_t> shape;
  if (!text.starts_with('(')) throw_damaged_file(path, "header field 'shape' is not a tuple");
  text.remove_prefix(1);
  while (!text.empty()) {
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 0)
      throw_damaged_file(path, "header field 'shape' is wrong", std::string(text));
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    while (text.starts_with(',') || text.starts_with(' ')) text.remove_prefix(1);
  }
  if (shape.empty() || shape.size() > 2)
    throw_damaged_file(path, "the array must have one or two dimensions",
                       std::to_string(shape.size()));
  return shape;
}

NpyType parse_type(std::string_view text, const fs::path& path) {
  for (const NpyTypeInfo& candidate : kTypes) {
    if (text == "'" + std::string(candidate.description) + "'") return candidate.type;
  }
  throw_damaged_file(path, "header field 'descr' is not an integer type of an index",
                     std::string(text));
}

template <class T>
std::int64_t load_value(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return static_cast<std::int64_t>(value);
}

}  // namespace

NpyArray NpyArray::load(const fs::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file->data()), file->size());
  if (bytes.size() < 10 || !bytes.starts_with(kMagic))
    throw_damaged_file(path, "not a NumPy array file of version 1.0");
  const std::size_t header_size = static_cast<unsigned char>(bytes[8]) |
                                  static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]))
                                      << 8;
  if (bytes.size() < 10 + header_size) throw_damaged_file(path, "truncated header");
  const std::string_view header = bytes.substr(10, header_size);
  if (header_value(header, "fortran_order", path) != "False")
    throw_damaged_file(path, "header field 'fortran_order' must be False");

  NpyArray array;
  array.type_ = parse_type(header_value(header, "descr", path), path);
  array.shape_ = parse_shape(header_value(header, "shape", path), path);
  const std::size_t value_size = static_cast<std::size_t>(facts(array.type_).size),
                    data_size = bytes.size() - 10 - header_size;
  const std::size_t available = data_size / value_size;
  std::size_t elements = 1;
  for (const std::int64_t extent : array.shape_) {
    if (__builtin_mul_overflow(elements, static_cast<std::size_t>(extent), &elements))
      throw_damaged_file(path, "header field 'shape' is too large");
  }
  if (elements > available)
    throw_damaged_file(path, "truncated",
                       "the header declares " + std::to_string(elements) +
                           " values, the file holds " + std::to_string(available));
  if (elements * value_size != data_size)
    throw_damaged_file(path, "bytes follow the values",
                       "the header declares " + std::to_string(elements * value_size) +
                           " bytes, the file holds " + std::to_string(data_size));
  array.size_ = static_cast<std::int64_t>(elements);
  array.data_ = file->data() + 10 + header_size;
  array.owner_ = std::move(file);
  return array;
}

void NpyArray::save(const fs::path& path) const {
  std::string shape = "(" + std::to_string(shape_[0]) +
                      (shape_.size() == 1 ? ",)" : ", " + std::to_string(shape_[1]) + ")");
  std::string header = "{'descr': '" + std::string(facts(type_).description) +
                       "', 'fortran_order': False, 'shape': " + shape + ", }";
  constexpr std::size_t kDigitsReserved = 21;  // numpy reserves space for the first extent to grow
  header.append(kDigitsReserved - std::to_string(shape_[0]).size(), ' ');
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  FileWriter writer(path);
  writer.write(kMagic);
  const std::uint16_t header_size = static_cast<std::uint16_t>(header.size());
  writer.write(&header_size, 2);
  writer.write(header);
  writer.write(data_, static_cast<std::size_t>(size_ * facts(type_).size));
  writer.close(/*sync=*/true);
}

std::int64_t NpyArray::at(std::int64_t i) const {
  MEGATRON_CHECK(i >= 0 && i < size_, "array index ", i, " of ", size_);
  switch (type_) {
    case NpyType::int16:
      return load_value<std::int16_t>(data_, i);
    case NpyType::int32:
      return load_value<std::int32_t>(data_, i);
    case NpyType::int64:
      return load_value<std::int64_t>(data_, i);
    case NpyType::uint32:
      return load_value<std::uint32_t>(data_, i);
  }
  return 0;
}

}  // namespace megatron
