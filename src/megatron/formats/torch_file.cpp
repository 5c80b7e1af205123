#include "megatron/formats/torch_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/words.h"
#include "megatron/formats/pickle_writer.h"

namespace megatron {
namespace {

constexpr const char* kFix = "the file is damaged or not one of torch.save: copy it again";
constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
constexpr int kMaxDepth = 64, kMaxWrappers = 8;
constexpr std::size_t kMaxVisits = 10'000'000;
/// What files before PyTorch 1.6 begin with: 0x1950a86a20f9469cfc6c.
constexpr std::string_view kMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t kLegacyVersion = 1001;

struct DtypeRow {
  TorchDtype dtype;
  std::string_view storage;  ///< its class, in files that have one for each dtype
};

constexpr std::array kDtypes{
    DtypeRow{{"float32", 4}, "FloatStorage"},
    DtypeRow{{"float64", 8}, "DoubleStorage"},
    DtypeRow{{"float16", 2}, "HalfStorage"},
    DtypeRow{{"bfloat16", 2}, "BFloat16Storage"},
    DtypeRow{{"int64", 8}, "LongStorage"},
    DtypeRow{{"int32", 4}, "IntStorage"},
    DtypeRow{{"int16", 2}, "ShortStorage"},
    DtypeRow{{"int8", 1}, "CharStorage"},
    DtypeRow{{"uint8", 1}, "ByteStorage"},
    DtypeRow{{"bool", 1}, "BoolStorage"},
    DtypeRow{{"complex64", 8}, "ComplexFloatStorage"},
    DtypeRow{{"complex128", 16}, "ComplexDoubleStorage"},
    DtypeRow{{"uint16", 2}, ""},
    DtypeRow{{"uint32", 4}, ""},
    DtypeRow{{"uint64", 8}, ""},
    DtypeRow{{"float8_e4m3fn", 1}, ""},
    DtypeRow{{"float8_e5m2", 1}, ""},
    DtypeRow{{"float8_e4m3fnuz", 1}, ""},
    DtypeRow{{"float8_e5m2fnuz", 1}, ""},
    DtypeRow{{"float8_e8m0fnu", 1}, ""},
    DtypeRow{{"float4_e2m1fn_x2", 1}, ""},
};

/// What a pickle says of a storage.
struct StorageId {
  std::string key;
  TorchDtype dtype = {"uint8", 1};
  std::uint64_t num_elements = 0;
  std::uint64_t view_offset = 0;  ///< in elements; files before PyTorch 0.4 store views
  std::optional<std::uint64_t> view_elements;

  std::uint64_t num_bytes(std::uint64_t elements) const {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements, dtype.element_size, &bytes))
      throw UserError(
          {"storage " + quoted_text(key) + " is too large", std::to_string(elements), {}});
    return bytes;
  }
};

std::uint64_t count_of(const PickleValue& value, std::string_view what) {
  const std::int64_t count = value.integer(what);
  if (count < 0)
    throw UserError({std::string(what) + " must not be negative", std::to_string(count), {}});
  return static_cast<std::uint64_t>(count);
}

/// Returns the elements of a tuple that must have at least `count`.
const std::vector<PickleValue>& members(const PickleValue& tuple, std::size_t count,
                                        std::string_view what) {
  const std::vector<PickleValue>& items = tuple.items(what);
  if (items.size() < count)
    throw UserError({std::string(what) + " must have " + std::to_string(count) + " members",
                     std::to_string(items.size()),
                     {}});
  return items;
}

/// Reads ("storage", class, key, device, number of elements[, view]).
StorageId storage_id(const PickleValue& value) {
  const std::vector<PickleValue>& id = members(value.persistent_id(), 5, "the id of a storage");
  if (id[0].bytes("the id's kind") != "storage")
    throw UserError({"the id's kind must be 'storage'", id[0].description(), {}});
  StorageId storage{.key = id[2].bytes("the storage's key"), .view_elements = {}};
  std::string_view type = id[1].global_name();
  type.remove_prefix(type.rfind('.') + 1);  // torch., torch.cuda., torch.storage.
  if (type != "UntypedStorage") {
    const auto* const row = std::ranges::find(kDtypes, type, &DtypeRow::storage);
    if (type.empty() || row == kDtypes.end())
      throw UserError({"storages of this kind are not supported", id[1].description(), {}});
    storage.dtype = row->dtype;
  }
  storage.num_elements = count_of(id[4], "the storage's size");
  if (id.size() > 5 && !id[5].is(PickleKind::none)) {
    const std::vector<PickleValue>& view = members(id[5], 3, "the storage's view");
    storage.view_offset = count_of(view[1], "the view's offset");
    storage.view_elements = count_of(view[2], "the view's size");
  }
  return storage;
}

/// Returns a + b · c; throws if one is negative or the result exceeds 2⁶².
std::int64_t add_product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t result = 0;
  if (a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(b, c, &result) ||
      __builtin_add_overflow(a, result, &result) || result > kMaxElements)
    throw UserError("a shape, stride or offset is negative or too large");
  return result;
}

}  // namespace

std::optional<TorchDtype> find_torch_dtype(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  const auto* const row = std::ranges::find(
      kDtypes, name, [](const DtypeRow& candidate) { return candidate.dtype.name; });
  return row == kDtypes.end() ? std::nullopt : std::optional(row->dtype);
}

std::int64_t TorchTensor::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

bool TorchTensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] != 1 && strides[dim] != expected && num_elements() != 0) return false;
    expected *= shape[dim];
  }
  return true;
}

ByteRange TorchTensor::bytes() const {
  if (num_elements() == 0) return {storage.begin, storage.begin};
  std::int64_t last = storage_offset;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) last += (shape[dim] - 1) * strides[dim];
  const auto at = [&](std::int64_t element) {
    return storage.begin + static_cast<std::uint64_t>(element) * dtype.element_size;
  };
  return {at(storage_offset), at(last + 1)};
}

TorchFile::TorchFile(std::span<const std::byte> bytes, const std::string& source,
                     std::uint64_t origin) try
    : source_(source) {
  constexpr std::uint32_t kZip = 0x04034b50;
  if (number_at<std::uint32_t>(bytes, 0) == kZip)
    read_zip(bytes, origin);
  else
    read_legacy(bytes, origin);
} catch (const UserError& error) {
  if (!error.parts().fix.empty()) throw;
  throw UserError({source + ": " + error.parts().what, error.parts().got, kFix});
}

void TorchFile::read_zip(std::span<const std::byte> bytes, std::uint64_t origin) {
  // All records are in a folder of any name.
  std::map<std::string, ByteRange> records;
  for (const auto& [name, range] : read_zip_directory(bytes, source_))
    records.emplace(name.substr(name.find('/') + 1), range);
  const auto text_of = [&](const std::string& name) {
    const auto found = records.find(name);
    if (found == records.end()) return std::string_view();
    const auto part = bytes.subspan(found->second.begin, found->second.size());
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  };
  if (records.contains("constants.pkl"))
    throw UserError({source_ + " is a model of TorchScript",
                     {},
                     "load it in PyTorch and save its state_dict() with torch.save"});
  if (const std::string_view order = text_of("byteorder"); !order.empty() && order != "little")
    throw UserError({"its byte order is not supported", quoted_text(order), {}});
  if (!records.contains("data.pkl")) throw UserError("the archive has no data.pkl");
  pickle_ = Pickle(text_of("data.pkl"), source_ + ": data.pkl");
  for (const PickleValue& id : pickle_.persistent_ids()) {
    const StorageId storage = storage_id(id);
    const auto record = records.find("data/" + storage.key);
    if (record == records.end())
      throw UserError("storage " + quoted_text(storage.key) + " is missing");
    const ByteRange range = record->second;
    if (range.size() != storage.num_bytes(storage.num_elements))
      throw UserError({"storage " + quoted_text(storage.key) + " has another size than its record",
                       std::to_string(range.size()) + " bytes",
                       {}});
    storages_[storage.key] = {origin + range.begin, origin + range.end};
  }
}

void TorchFile::read_legacy(std::span<const std::byte> bytes, std::uint64_t origin) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::size_t position = 0;
  const auto next = [&] {
    Pickle pickle(text.substr(position), source_);
    position += pickle.num_bytes();
    return pickle;
  };
  if (!text.starts_with('\x80'))  // the first opcode
    throw UserError("not a file of torch.save");
  if (const Pickle magic = next();
      !magic.root().is(PickleKind::big_integer) || magic.root().bytes("the magic number") != kMagic)
    throw UserError("not a file of torch.save but another pickle");
  if (const std::int64_t version = next().root().integer("the version"); version != kLegacyVersion)
    throw UserError({"its version is unknown", std::to_string(version), {}});
  next();  // sizes of types of the machine; storages are little-endian on any
  pickle_ = next();
  std::map<std::string, StorageId> ids;
  for (const PickleValue& id : pickle_.persistent_ids()) {
    StorageId storage = storage_id(id);
    ids.emplace(storage.key, std::move(storage));
  }
  const Pickle keys = next();
  for (const PickleValue& key : keys.root().items("the list of storages")) {
    const auto id = ids.find(key.bytes("a storage's key"));
    if (id == ids.end()) throw UserError({"no tensor has the storage", key.description(), {}});
    const StorageId& storage = id->second;
    const std::uint64_t size = storage.num_bytes(storage.num_elements);
    const auto count = number_at<std::uint64_t>(bytes, position);
    if (count != storage.num_elements || size > bytes.size() - position - sizeof *count)
      throw UserError("storage " + quoted_text(storage.key) + " is damaged or not complete");
    position += sizeof *count;
    storages_[storage.key] = {origin + position, origin + position + size};
    position += size;
  }
}

TorchTensor TorchFile::rebuilt(std::string_view function, const PickleValue& args) const {
  const bool has_dtype = function == "_rebuild_tensor_v3";
  if (!has_dtype && function != "_rebuild_tensor_v2" && function != "_rebuild_tensor")
    throw UserError({"tensors of this kind are not supported", std::string(function),
                     "save it as a dense tensor with data"});
  const std::vector<PickleValue>& parts = members(args, has_dtype ? 7 : 4, "a tensor");
  const StorageId id = storage_id(parts[0]);
  const auto stored = storages_.find(id.key);
  if (stored == storages_.end()) throw UserError("storage " + quoted_text(id.key) + " is missing");
  TorchTensor tensor{.dtype = id.dtype,
                     .shape = parts[2].integers("a tensor's shape"),
                     .strides = parts[3].integers("a tensor's strides"),
                     .storage_offset = parts[1].integer("a tensor's offset"),
                     .storage_key = id.key,
                     .storage = stored->second};
  if (id.view_elements) {
    const std::uint64_t begin = id.num_bytes(id.view_offset),
                        size = id.num_bytes(*id.view_elements);
    if (begin > tensor.storage.size() || size > tensor.storage.size() - begin)
      throw UserError("a view lies outside of its storage " + quoted_text(id.key));
    tensor.storage = {tensor.storage.begin + begin, tensor.storage.begin + begin + size};
  }
  if (has_dtype) {
    const auto dtype = find_torch_dtype(parts[6].global_name());
    if (!dtype) throw UserError({"the dtype is not supported", parts[6].description(), {}});
    tensor.dtype = *dtype;
  }
  const std::size_t flags = has_dtype ? 7 : 6;  // a dict of them, such as the conjugate bit
  if (parts.size() > flags && parts[flags].is(PickleKind::dict) &&
      !parts[flags].entries("flags").empty())
    throw UserError("conjugated and negated tensors are not supported");
  if (tensor.shape.size() != tensor.strides.size())
    throw UserError("a tensor's shape and strides differ in length");
  std::int64_t count = 1, last = tensor.storage_offset;
  const bool is_empty = std::ranges::find(tensor.shape, 0) != tensor.shape.end();
  for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    const std::int64_t extent = tensor.shape[dim];
    add_product(0, extent, 1);
    count = add_product(0, count, std::max<std::int64_t>(extent, 1));
    last = add_product(last, std::max<std::int64_t>(extent - 1, 0), tensor.strides[dim]);
  }
  const std::uint64_t held = tensor.storage.size() / tensor.dtype.element_size;
  if (last < 0 || (!is_empty && static_cast<std::uint64_t>(last) >= held))
    throw UserError("a tensor lies outside of its storage " + quoted_text(id.key));
  return tensor;
}

std::optional<TorchTensor> TorchFile::tensor(const PickleValue& value) const try {
  PickleValue call = value.callable(), args = value.args();
  for (int wrapper = 0; wrapper < kMaxWrappers; ++wrapper) {
    std::string_view name = call.global_name();
    if (name == "torch._tensor._rebuild_from_type_v2") {  // function, class, its arguments, state
      const std::vector<PickleValue>& parts = members(args, 3, "a tensor");
      call = parts[0];
      args = parts[2];
    } else if (name.starts_with("torch._utils._rebuild_parameter")) {
      const PickleValue data = members(args, 1, "a parameter")[0];
      call = data.callable();
      args = data.args();
    } else if (name.starts_with("torch._utils._rebuild_")) {
      name.remove_prefix(std::string_view("torch._utils.").size());
      return rebuilt(name, args);
    } else if (wrapper == 0) {
      return std::nullopt;
    } else {
      throw UserError({"tensors of this kind are not supported", call.description(), {}});
    }
  }
  throw UserError("a tensor is wrapped too often");
} catch (const UserError& error) {
  throw UserError({source_ + ": " + error.parts().what, error.parts().got,
                   error.parts().fix.empty() ? kFix : error.parts().fix});
}

std::vector<NamedTensor> TorchFile::tensors(const PickleValue& value) const {
  std::vector<NamedTensor> found;
  std::size_t visits = 0;
  const auto collect = [&](const auto& self, const PickleValue& part, const std::string& name,
                           int depth) -> void {
    if (depth > kMaxDepth || ++visits > kMaxVisits)
      throw UserError(
          {source_ + ": values are nested too deeply or without end", quoted_text(name), kFix});
    if (auto tensor = this->tensor(part)) {
      found.push_back({name, std::move(*tensor)});
      return;
    }
    const std::string prefix = name.empty() ? "" : name + ".";
    if (part.is(PickleKind::dict)) {
      for (const PickleEntry& entry : part.entries(name)) {
        const bool is_text = entry.key.is(PickleKind::text);
        const bool is_index = entry.key.is(PickleKind::integer);
        self(self, entry.value,
             prefix + (is_text    ? entry.key.text(name)
                       : is_index ? std::to_string(entry.key.integer(name))
                                  : entry.key.description()),
             depth + 1);
      }
    } else if (part.is(PickleKind::list) || part.is(PickleKind::tuple)) {
      std::size_t index = 0;
      for (const PickleValue& item : part.items(name))
        self(self, item, prefix + std::to_string(index++), depth + 1);
    }
  };
  collect(collect, value, "", 0);
  return found;
}

TorchFile open_torch_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return TorchFile(file.bytes(), path.string());
}

Json torch_tensor(const TorchTensor& tensor) {
  const auto* const row = std::ranges::find(kDtypes, tensor.dtype, &DtypeRow::dtype);
  MEGATRON_CHECK(row != kDtypes.end() && !row->storage.empty(),
                 "torch.save has no storage class for ", tensor.dtype.name);
  std::vector<std::int64_t> strides(tensor.shape.size());
  std::int64_t count = 1;
  for (std::size_t i = strides.size(); i-- > 0; count *= tensor.shape[i]) strides[i] = count;
  const Json storage = pickle_tuple(
      {"storage", pickle_global("torch." + std::string(row->storage)), "0", "cpu", count});
  const Json hooks = pickle_call("collections.OrderedDict", Json::array());
  return pickle_call("torch._utils._rebuild_tensor_v2",
                     {pickle_persistent_id(storage), 0, pickle_tuple(tensor.shape),
                      pickle_tuple(strides), /*requires_grad*/ false, hooks});
}

void write_torch_file(FileWriter& file, const Json& value,
                      std::optional<std::span<const std::byte>> storage) {
  const std::string pickle = pickle_of(value);
  const auto bytes_of = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  std::vector<std::pair<std::string, std::span<const std::byte>>> records{
      {"archive/data.pkl", bytes_of(pickle)}, {"archive/byteorder", bytes_of("little")}};
  if (storage) records.emplace_back("archive/data/0", *storage);
  records.emplace_back("archive/version", bytes_of("3\n"));
  write_zip(file, records);
}

}  // namespace megatron
