#include "megatron/formats/gguf.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/error.h"
#include "megatron/formats/pickle.h"

namespace megatron {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3, kDefaultAlignment = 32, kMostDimensions = 4;
/// A value takes some 16 bytes of memory or more, whatever it takes in the file. The largest
/// vocabularies have less than a million tokens and merges.
constexpr std::uint64_t kMostValues = 1 << 23;
/// Numbers of the types of metadata that are written. value() reads them all.
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kArray = 9;
constexpr std::uint64_t kDeepestArray = 4, kLongestKey = 65535;
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 60;
constexpr GgufType kTypes[] = {kGgufF32, kGgufF16, kGgufQ80, kGgufBf16};
/// The names of the types by number, for the message that refuses most of them.
constexpr std::string_view kTypeNames[] = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS"};

std::uint64_t aligned(std::uint64_t position, std::uint64_t alignment) {
  return (position + alignment - 1) / alignment * alignment;
}

/// Returns the number that the fewest digits name which give the same float32.
double shortest(float value) {
  char digits[32];
  double result = value;
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  std::from_chars(digits, end, result);
  return result;
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(bytes), source_(source) {}

  GgufFile read() {
    require(raw(4, "the magic number") == kMagic, "it does not begin with GGUF");
    item_ = at_;
    const auto version = number<std::uint32_t>("the version");
    require(version == 2 || version == kVersion,
            "its version is " + std::to_string(version) + ", not 2 or 3" +
                (version >> 16 != 0 ? " (a big-endian file)" : ""));
    const std::uint64_t num_tensors = count("tensors", 24), num_pairs = count("metadata", 13);
    *file_.metadata = Json::object();
    for (std::uint64_t i = 0; i < num_pairs; ++i) {
      const std::string name = key("a key"), what = "the value of " + quoted_text(name);
      require(!file_.metadata->contains(name), "the key " + quoted_text(name) + " is there twice");
      const auto type = number<std::uint32_t>(what);
      (*file_.metadata)[name] = value(type, what, 0);
    }
    read_tensors(num_tensors);
    return std::move(file_);
  }

 private:
  /// Throws a UserError that names the byte where the item begins that is read.
  void require(bool is_right, std::string_view what, std::string_view fault = "") const {
    if (is_right) return;
    throw UserError(
        {source_ + ": not a GGUF file that this program reads",
         "byte " + std::to_string(item_) + ": " + std::string(what) + std::string(fault),
         "the file is damaged, not complete or of another kind: download it again"});
  }

  std::string_view raw(std::uint64_t size, const std::string& what) {
    if (size > bytes_.size() - at_) item_ = at_;
    require(size <= bytes_.size() - at_, what, " ends behind the file");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }
  template <class Number>
  Number number(const std::string& what) {
    Number value;
    const std::string_view bytes = raw(sizeof value, what);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  /// Reads the number of things that take at least `bytes_each` bytes.
  std::uint64_t count(const std::string& what, std::uint64_t bytes_each) {
    item_ = at_;
    const auto number_of = number<std::uint64_t>("the number of " + what);
    require(number_of <= (bytes_.size() - at_) / bytes_each,
            "there is no room for " + std::to_string(number_of) + " " + what);
    return number_of;
  }
  std::string text(const std::string& what) {
    const auto size = number<std::uint64_t>("the length of " + what);
    return std::string(raw(size, what));
  }
  /// Reads the name with which an item begins.
  std::string key(const std::string& what) {
    item_ = at_;
    std::string name = text(what);
    require(!name.empty() && name.size() <= kLongestKey, what, " has a wrong length");
    return name;
  }

  Json value(std::uint32_t type, const std::string& what, std::uint64_t depth) {
    require(++num_values_ <= kMostValues, "the metadata has too many values");
    // clang-format off
    switch (type) {
      case 0: return number<std::uint8_t>(what);
      case 1: return number<std::int8_t>(what);
      case 2: return number<std::uint16_t>(what);
      case 3: return number<std::int16_t>(what);
      case kU32: return number<std::uint32_t>(what);
      case kI32: return number<std::int32_t>(what);
      case kF32: return shortest(number<float>(what));
      case kText: return text(what);
      case kArray: return array(what, depth + 1);
      case 10: return number<std::uint64_t>(what);
      case 11: return number<std::int64_t>(what);
      case 12: return number<double>(what);
      default: require(type == kBool, what + " has the unknown type " + std::to_string(type));
    }
    // clang-format on
    const auto flag = number<std::uint8_t>(what);
    require(flag <= 1, what, " is neither true nor false");
    return flag == 1;
  }
  Json array(const std::string& what, std::uint64_t depth) {
    require(depth <= kDeepestArray, what, " has too many arrays in each other");
    const auto type = number<std::uint32_t>(what);
    const std::uint64_t size = count("values of " + what, 1);
    Json result = Json::array();
    for (std::uint64_t i = 0; i < size; ++i) result.push_back(value(type, what, depth));
    return result;
  }

  std::uint64_t alignment() const {
    const Json given = file_.metadata->value("general.alignment", Json(kDefaultAlignment));
    require(given.is_number_unsigned() && given <= 1 << 20 &&
                std::has_single_bit(given.get<std::uint64_t>()),
            "general.alignment is no power of two");
    return given.get<std::uint64_t>();
  }

  GgufType type(const std::string& tensor) {
    const std::uint64_t begin = at_;
    const auto id = number<std::uint32_t>("the type of " + tensor);
    const auto known = std::ranges::find(kTypes, id, &GgufType::id);
    if (known != std::end(kTypes)) return *known;
    const std::string name(id < std::size(kTypeNames) ? kTypeNames[id] : "");
    throw UserError(
        {source_ + ": " + tensor + " has numbers of a type that is not read",
         (name.empty() ? "type " + std::to_string(id) : name) + " at byte " + std::to_string(begin),
         "use a file of the same model in F32, F16, BF16 or Q8_0"});
  }

  void read_tensors(std::uint64_t num_tensors) {
    std::set<std::string> names;
    std::vector<std::uint64_t> items;
    for (; num_tensors > 0; --num_tensors) {
      GgufTensor tensor{.name = key("a tensor's name")};
      items.push_back(item_);
      const std::string what = "tensor " + quoted_text(tensor.name);
      require(names.insert(tensor.name).second, what, " is there twice");
      const auto num_dims = number<std::uint32_t>(what);
      require(num_dims <= kMostDimensions, what, " has more than 4 dimensions");
      std::uint64_t num_elements = 1;
      for (std::uint32_t dim = 0; dim < num_dims; ++dim) {
        const auto extent = number<std::uint64_t>(what);
        const bool is_too_large =
            extent > kMostElements || __builtin_mul_overflow(num_elements, extent, &num_elements);
        require(!is_too_large && num_elements <= kMostElements, what, " is too large");
        tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
      }
      tensor.type = type(what);
      const std::int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
      require(static_cast<std::uint64_t>(row) % tensor.type.block_size == 0, what,
              " has rows that are no multiple of a block");
      tensor.bytes.begin = number<std::uint64_t>(what);  // from the end of the descriptions
      file_.tensors.push_back(std::move(tensor));
    }
    const std::uint64_t begin = aligned(at_, alignment());
    for (std::size_t i = 0; i < items.size(); ++i) {
      GgufTensor& tensor = file_.tensors[i];
      item_ = items[i];
      const std::string what = "tensor " + quoted_text(tensor.name);
      const std::uint64_t size = tensor.num_bytes(), offset = tensor.bytes.begin;
      require(offset % alignment() == 0, what, " is not aligned");
      require(begin <= bytes_.size() && offset <= bytes_.size() - begin &&
                  size <= bytes_.size() - begin - offset,
              what, " ends behind the file");
      tensor.bytes = {begin + offset, begin + offset + size};
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  std::uint64_t at_ = 0, item_ = 0, num_values_ = 0;
  GgufFile file_;
};

template <class Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_text(std::string& bytes, std::string_view text) {
  append<std::uint64_t>(bytes, text.size());
  bytes += text;
}

std::uint32_t type_of(const Json& value) {
  return value.is_number_unsigned()  ? kU32
         : value.is_number_integer() ? kI32
         : value.is_number_float()   ? kF32
         : value.is_boolean()        ? kBool
         : value.is_array()          ? kArray
                                     : kText;
}

void append_value(std::string& bytes, const Json& value, std::uint32_t type) {
  if (type == kU32) return append(bytes, value.get<std::uint32_t>());
  if (type == kI32) return append(bytes, value.get<std::int32_t>());
  if (type == kF32) return append(bytes, value.get<float>());
  if (type == kBool) return append(bytes, value.get<bool>());
  if (type == kText) return append_text(bytes, value.get<std::string>());
  const std::uint32_t element = value.empty() ? kText : type_of(value.front());
  append(bytes, element);
  append<std::uint64_t>(bytes, value.size());
  for (const Json& each : value) append_value(bytes, each, element);
}

}  // namespace

std::uint64_t GgufTensor::num_bytes() const {
  std::uint64_t num_elements = 1;
  for (const std::int64_t extent : shape) num_elements *= static_cast<std::uint64_t>(extent);
  return num_elements / type.block_size * type.block_bytes;
}

GgufFile read_gguf(std::span<const std::byte> bytes, const std::string& source) {
  return GgufReader(bytes, source).read();
}

std::string gguf_header(const Json& metadata, std::vector<GgufTensor>& tensors) {
  std::string header(kMagic);
  append(header, kVersion);
  append<std::uint64_t>(header, tensors.size());
  append<std::uint64_t>(header, metadata.size());
  for (const auto& [key, value] : metadata.items()) {
    append_text(header, key);
    append(header, type_of(value));
    append_value(header, value, type_of(value));
  }
  std::uint64_t offset = 0;
  for (GgufTensor& tensor : tensors) {
    append_text(header, tensor.name);
    append(header, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent)
      append(header, static_cast<std::uint64_t>(*extent));
    append(header, tensor.type.id);
    append(header, offset);
    tensor.bytes = {offset, offset + tensor.num_bytes()};
    offset = aligned(tensor.bytes.end, kDefaultAlignment);
  }
  header.resize(aligned(header.size(), kDefaultAlignment), '\0');
  for (GgufTensor& tensor : tensors)
    tensor.bytes = {header.size() + tensor.bytes.begin, header.size() + tensor.bytes.end};
  return header;
}

}  // namespace megatron
