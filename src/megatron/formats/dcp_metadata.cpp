#include "megatron/formats/dcp_metadata.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr const char* kFix =
    "the checkpoint is damaged, not complete, or of a version of PyTorch that is not known";

using Extents = std::vector<std::int64_t>;
/// Where a piece is stored, by its offsets.
using StoredPieces = std::map<Extents, DcpPiece>;

/// Returns the name of an object's class without its module, which has changed between versions.
std::string_view class_name(const PickleValue& value) {
  std::string_view name = value.callable().global_name();
  name.remove_prefix(name.rfind('.') + 1);
  return name;
}

/// Calls `read`; adds where it was to what it throws.
template <class Read>
auto reading(const std::string& place, const Read& read) try {
  return read();
} catch (const UserError& error) {
  if (!error.parts().fix.empty()) throw;
  throw UserError({place + ": " + error.parts().what, error.parts().got, kFix});
}

/// A file beside the index, and nothing outside of its folder.
void check_file_name(const std::string& name) {
  bool is_plain = !name.empty() && name.front() != '/' && name.find('\0') == std::string::npos;
  for (const std::filesystem::path& part : std::filesystem::path(name))
    is_plain = is_plain && part != "..";
  if (!is_plain)
    throw UserError({"a file of the checkpoint lies outside of it", quoted_text(name), {}});
}

/// Reads a _StorageInfo.
DcpPiece stored_piece(const PickleValue& info) {
  DcpPiece piece{.file = info.at("relative_path", "a stored piece").text("relative_path")};
  check_file_name(piece.file);
  const std::int64_t begin = info.at("offset", "a stored piece").integer("offset"),
                     length = info.at("length", "a stored piece").integer("length");
  std::int64_t end = 0;
  if (begin < 0 || length < 0 || __builtin_add_overflow(begin, length, &end))
    throw UserError({"a stored piece has no valid range",
                     std::to_string(length) + " bytes at " + std::to_string(begin),
                     {}});
  piece.bytes = {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
  const PickleValue transforms = info.find("transform_descriptors").value_or(PickleValue());
  if (!transforms.is(PickleKind::none))
    for (const PickleValue& name : transforms.items("transform_descriptors"))
      piece.transforms.push_back(name.text("transform_descriptors"));
  return piece;
}

/// Reads storage_data, a dict from MetadataIndex to _StorageInfo, by name.
std::map<std::string, StoredPieces> stored_pieces(const PickleValue& storage_data,
                                                  const std::string& source) {
  std::map<std::string, StoredPieces> stored;
  for (const auto& [index, info] : storage_data.entries("storage_data")) {
    const std::string& name = index.at("fqn", "an index").text("fqn");
    const PickleValue offset = index.find("offset").value_or(PickleValue());
    reading(source + ": " + quoted_text(name), [&, &info = info] {
      Extents offsets;
      if (!offset.is(PickleKind::none)) offsets = offset.integers("its offset");
      if (!stored[name].emplace(offsets, stored_piece(info)).second)
        throw UserError("a piece is stored twice");
    });
  }
  return stored;
}

/// Takes the stored piece of a tensor at `offsets` out of `stored`.
DcpPiece take_piece(StoredPieces& stored, const Extents& offsets) {
  const auto node = stored.extract(offsets);
  if (!node) throw UserError("a piece is not stored");
  return std::move(node.mapped());
}

DcpTensor read_tensor(const PickleValue& metadata, StoredPieces& stored) {
  DcpTensor tensor{.shape = metadata.at("size", "the tensor").integers("its size")};
  const PickleValue properties = metadata.at("properties", "the tensor");
  // The state is a tuple that begins with the dtype, or the attributes.
  const PickleValue dtype =
      properties.state().is(PickleKind::tuple) && !properties.state().items("properties").empty()
          ? properties.state().items("properties")[0]
          : properties.at("dtype", "its properties");
  const auto known = find_torch_dtype(dtype.global_name());
  if (!known) throw UserError({"its dtype is not supported", dtype.description(), {}});
  tensor.dtype = *known;
  for (const PickleValue& chunk : metadata.at("chunks", "the tensor").items("its chunks")) {
    Extents offsets = chunk.at("offsets", "a chunk").integers("its offsets"),
            sizes = chunk.at("sizes", "a chunk").integers("its sizes");
    bool lies_inside = offsets.size() == tensor.shape.size() && sizes.size() == offsets.size();
    for (std::size_t dim = 0; lies_inside && dim < sizes.size(); ++dim)
      lies_inside = offsets[dim] >= 0 && sizes[dim] >= 0 && offsets[dim] <= tensor.shape[dim] &&
                    sizes[dim] <= tensor.shape[dim] - offsets[dim];
    if (!lies_inside) throw UserError("a chunk lies outside of it");
    DcpPiece piece = take_piece(stored, offsets);
    piece.offsets = std::move(offsets);
    piece.sizes = std::move(sizes);
    tensor.pieces.push_back(std::move(piece));
  }
  return tensor;
}

/// Adds what Megatron writes of tensors whose last axes it flattened.
void add_original_shapes(const PickleValue& root, DcpMetadata& metadata) {
  const PickleValue data = root.find("mcore_data").value_or(PickleValue());
  if (data.is(PickleKind::none)) return;
  for (const auto& [name, facts] : data.entries("mcore_data")) {
    const auto found = metadata.tensors.find(name.text("a name in mcore_data"));
    const auto shape = facts.find("nd_reformulated_orig_global_shape");
    if (found != metadata.tensors.end() && shape)
      found->second.original_shape = shape->integers("nd_reformulated_orig_global_shape");
  }
}

}  // namespace

DcpMetadata parse_dcp_metadata(std::string_view pickle, const std::string& source) {
  const Pickle parsed(pickle, source);
  return reading(source, [&] {
    const PickleValue& root = parsed.root();
    if (!class_name(root).ends_with("Metadata"))  // Metadata, MCoreMetadata
      throw UserError({"not the index of a distributed checkpoint", root.description(), {}});
    auto stored = stored_pieces(root.at("storage_data", "the index"), source);
    DcpMetadata metadata;
    for (const auto& [key, value] : root.at("state_dict_metadata", "the index").entries("it")) {
      const std::string& name = key.text("the name of a tensor");
      reading(source + ": " + quoted_text(name), [&, &value = value] {
        if (class_name(value) == "TensorStorageMetadata")
          metadata.tensors[name] = read_tensor(value, stored[name]);
        else if (class_name(value) == "BytesStorageMetadata")
          metadata.objects[name] = take_piece(stored[name], {});
        else
          throw UserError({"neither a tensor nor bytes", value.description(), {}});
        if (!stored[name].empty()) throw UserError("a piece is stored that it does not have");
      });
      stored.erase(name);
    }
    if (!stored.empty())
      throw UserError(
          {"bytes are stored that no tensor has", quoted_text(stored.begin()->first), {}});
    add_original_shapes(root, metadata);
    return metadata;
  });
}

DcpMetadata read_dcp_metadata(const std::filesystem::path& folder) {
  const MappedFile file(folder / ".metadata");
  return parse_dcp_metadata({reinterpret_cast<const char*>(file.data()), file.size()},
                            file.path().string());
}

TorchFile open_dcp_piece(std::span<const std::byte> file, const DcpPiece& piece,
                         const std::string& source) {
  if (!piece.transforms.empty())
    throw UserError({source + ": a piece is compressed or encrypted",
                     quoted_text(piece.transforms.front()), "save it without stream extensions"});
  if (piece.bytes.end > file.size())
    throw UserError(
        {source + ": a piece ends behind the file",
         std::to_string(piece.bytes.end) + " of " + std::to_string(file.size()) + " bytes", kFix});
  return TorchFile(file.subspan(piece.bytes.begin, piece.bytes.size()),
                   source + ", byte " + std::to_string(piece.bytes.begin), piece.bytes.begin);
}

TorchTensor read_dcp_tensor(std::span<const std::byte> file, const DcpTensor& tensor,
                            const DcpPiece& piece, const std::string& source) {
  const TorchFile stored = open_dcp_piece(file, piece, source);
  auto found = stored.tensor(stored.root());
  if (!found || found->dtype != tensor.dtype || found->shape != piece.sizes)
    throw UserError({source + ": byte " + std::to_string(piece.bytes.begin) +
                         " does not hold the tensor that the index names",
                     found ? std::string(found->dtype.name) + " [" + joined_text(found->shape) + "]"
                           : stored.root().description(),
                     kFix});
  return std::move(*found);
}

std::optional<MegatronFolderFormat> read_megatron_folder_format(
    const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "metadata.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const JsonCursor json(read_json(path), path.string());
  MegatronFolderFormat format{.sharded_backend = json["sharded_backend"].text()};
  if (const auto version = json.find("sharded_backend_version"))
    format.sharded_backend_version = version->integer();
  if (const auto backend = json.find("common_backend")) format.common_backend = backend->text();
  if (const auto version = json.find("common_backend_version"))
    format.common_backend_version = version->integer();
  return format;
}

}  // namespace megatron
