#include "megatron/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/slice_math.h"

namespace megatron {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;

constexpr const char* kDamaged =
    "the file is damaged or not a safetensors file: copy or download it again";

[[noreturn]] void throw_damaged_file(const std::string& source, const std::string& what,
                                     const std::string& got = {}) {
  throw UserError({source + ": " + what, got, kDamaged});
}

[[noreturn]] void throw_damaged_tensor(const std::string& source, const std::string& name,
                                       const std::string& what, const std::string& got = {}) {
  throw_damaged_file(source, "tensor '" + name + "': " + what, got);
}

std::string_view header_text(const MappedFile& file) {
  const std::string source = file.path().string();
  if (file.size() < kLengthBytes)
    throw_damaged_file(source, "too short for a safetensors header",
                       std::to_string(file.size()) + " bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    throw_damaged_file(source, "header length exceeds 100 MB", std::to_string(length));
  if (length > file.size() - kLengthBytes)
    throw_damaged_file(source, "header length exceeds the file",
                       std::to_string(length) + " bytes of " + std::to_string(file.size()));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text.empty() || text.front() != '{')
    throw_damaged_file(source, "the header must be a JSON object");
  return text;
}

std::uint64_t unsigned_value(const JsonCursor& json) {
  if (!json->is_number_unsigned())
    throw UserError({json.name() + " must be a non-negative integer", json->dump(), kDamaged});
  return json->get<std::uint64_t>();
}

Shape read_shape(const JsonCursor& json) {
  Shape shape;
  for (const JsonCursor& extent : json.elements()) {
    const std::uint64_t value = unsigned_value(extent);
    if (value > (std::uint64_t{1} << 62))
      throw_damaged_file(json.place(), "is too large", json->dump());
    shape.push_back(static_cast<std::int64_t>(value));
  }
  return shape;
}

StoredTensor read_entry(const std::string& name, const JsonCursor& entry) try {
  StoredTensor tensor{.name = name, .shape = {}};
  const std::string type = entry["dtype"].text();
  const auto known = parse_safetensors_dtype(type);
  if (!known) throw_damaged_file(entry.place(), "unknown dtype", type);
  tensor.type = *known;
  tensor.shape = read_shape(entry["shape"]);
  const std::vector<JsonCursor> offsets = entry["data_offsets"].elements();
  if (offsets.size() != 2) throw_damaged_file(entry.place(), "data_offsets must be [begin, end]");
  tensor.begin = unsigned_value(offsets[0]);
  tensor.end = unsigned_value(offsets[1]);
  for (const auto& [key, value] : entry->items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      throw_damaged_file(entry.place(), "unknown field", key);
  }
  return tensor;
} catch (const UserError& error) {
  if (!error.parts().fix.empty()) throw;
  throw UserError({error.parts().what, error.parts().got, kDamaged});
}

void check_sizes(const StoredTensor& tensor, std::uint64_t data_size, const std::string& source) {
  const std::string got =
      "[" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + "]";
  if (tensor.end < tensor.begin)
    throw_damaged_tensor(source, tensor.name, "data_offsets run backwards", got);
  if (tensor.end > data_size)
    throw_damaged_tensor(source, tensor.name, "data_offsets lie outside the file",
                         got + " of " + std::to_string(data_size) + " bytes");
  const auto elements = checked_num_elements(tensor.shape);
  std::uint64_t bytes = 0;
  if (!elements ||
      __builtin_mul_overflow(static_cast<std::uint64_t>(*elements), element_size(tensor.type),
                             &bytes) ||
      bytes != tensor.num_bytes()) {
    throw_damaged_tensor(source, tensor.name, "shape and dtype do not match data_offsets",
                         shape_text(tensor.shape) + " " +
                             std::string(safetensors_dtype_name(tensor.type)) + " in " +
                             std::to_string(tensor.num_bytes()) + " bytes");
  }
}

void check_no_holes(const std::vector<StoredTensor>& tensors, std::uint64_t data_size,
                    const std::string& source) {
  std::uint64_t position = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != position) {
      throw_damaged_tensor(
          source, tensor.name,
          tensor.begin < position ? "its data overlaps the tensor before it"
                                  : "there is a hole before its data",
          "begins at " + std::to_string(tensor.begin) + ", expected " + std::to_string(position));
    }
    position = tensor.end;
  }
  if (position != data_size) {
    throw_damaged_file(
        source, "the file's size does not match its header",
        std::to_string(data_size) + " bytes of data, expected " + std::to_string(position));
  }
}

std::map<std::string, std::string> read_metadata(const Json& object, const std::string& source) {
  std::map<std::string, std::string> metadata;
  if (!object.is_object()) throw_damaged_file(source, "__metadata__ must be an object of strings");
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string())
      throw_damaged_file(source, "__metadata__ field '" + key + "' must be a string");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

struct TypeRow {
  SafetensorsDtype type;
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array kTypes{
    TypeRow{SafetensorsDtype::BOOL, "BOOL", 1},
    TypeRow{SafetensorsDtype::U8, "U8", 1},
    TypeRow{SafetensorsDtype::I8, "I8", 1},
    TypeRow{SafetensorsDtype::F8_E5M2, "F8_E5M2", 1},
    TypeRow{SafetensorsDtype::F8_E4M3, "F8_E4M3", 1},
    TypeRow{SafetensorsDtype::F8_E8M0, "F8_E8M0", 1},
    TypeRow{SafetensorsDtype::I16, "I16", 2},
    TypeRow{SafetensorsDtype::U16, "U16", 2},
    TypeRow{SafetensorsDtype::F16, "F16", 2},
    TypeRow{SafetensorsDtype::BF16, "BF16", 2},
    TypeRow{SafetensorsDtype::I32, "I32", 4},
    TypeRow{SafetensorsDtype::U32, "U32", 4},
    TypeRow{SafetensorsDtype::F32, "F32", 4},
    TypeRow{SafetensorsDtype::C64, "C64", 8},
    TypeRow{SafetensorsDtype::F64, "F64", 8},
    TypeRow{SafetensorsDtype::I64, "I64", 8},
    TypeRow{SafetensorsDtype::U64, "U64", 8},
};

const TypeRow& row(SafetensorsDtype type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [&](const TypeRow& candidate) { return candidate.type == type; });
}

}  // namespace

std::string_view safetensors_dtype_name(SafetensorsDtype type) { return row(type).name; }

std::optional<SafetensorsDtype> parse_safetensors_dtype(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const TypeRow& candidate) { return candidate.name == name; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::uint64_t element_size(SafetensorsDtype type) { return row(type).bytes; }

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  const std::string source = path.string();
  const std::string_view text = header_text(file_);
  data_ = file_.bytes().subspan(kLengthBytes + text.size());
  const Json header = parse_json_unique_keys(text, source + ": header");
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = read_metadata(entry, source);
      continue;
    }
    tensors_.push_back(read_entry(name, JsonCursor(entry, source + ": tensor '" + name + "'")));
    check_sizes(tensors_.back(), data_.size(), source);
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_no_holes(tensors_, data_.size(), source);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::uint64_t TensorHeader::num_bytes() const {
  return static_cast<std::uint64_t>(num_elements(shape)) * element_size(type);
}

void sort_for_writing(std::vector<TensorHeader>& headers) {
  std::stable_sort(headers.begin(), headers.end(),
                   [](const TensorHeader& a, const TensorHeader& b) {
                     return element_size(a.type) > element_size(b.type);
                   });
}

std::string safetensors_header(const std::vector<TensorHeader>& headers,
                               const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t position = 0;
  for (const TensorHeader& head : headers) {
    const std::uint64_t end = position + head.num_bytes();
    MEGATRON_CHECK(!header.contains(head.name), "tensor ", head.name, " occurs twice in one file");
    header[head.name] = {{"dtype", std::string(safetensors_dtype_name(head.type))},
                         {"shape", head.shape},
                         {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorHeader> headers,
                                     const std::map<std::string, std::string>& metadata,
                                     FileSystem& files)
    : headers_(std::move(headers)), writer_(path, files) {
  sort_for_writing(headers_);
  const std::string header = safetensors_header(headers_, metadata);
  header_checksum_ = checksum(header);
  writer_.write(header);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  MEGATRON_CHECK(next_ < headers_.size(), "tensor ", next_, " of ", headers_.size(), " headers");
  MEGATRON_CHECK(bytes.size() == headers_[next_].num_bytes(), "tensor ", headers_[next_].name,
                 " has ", bytes.size(), " bytes, its header says ", headers_[next_].num_bytes());
  writer_.write(bytes.data(), bytes.size());
  ++next_;
}

void SafetensorsWriter::close() {
  MEGATRON_CHECK(next_ == headers_.size(), next_, " of ", headers_.size(), " tensors were written");
  writer_.close(/*sync=*/true);
}

}  // namespace megatron
