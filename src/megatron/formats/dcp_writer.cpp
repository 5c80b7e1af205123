#include "megatron/formats/dcp_writer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/formats/pickle_writer.h"

namespace megatron {
namespace {

constexpr std::uint64_t kAlignment = 64;  ///< of pieces, so that their tensors are aligned too

/// Returns an object of one of the classes of the index.
Json metadata_object(const std::string& name, Json state) {
  return pickle_object("torch.distributed.checkpoint.metadata." + name, std::move(state));
}

Json size_of(const std::vector<std::int64_t>& extents) {
  return pickle_call("torch.Size", Json::array({pickle_tuple(extents)}));
}

Json metadata_of(const DcpTensor& tensor) {
  Json chunks = Json::array();
  for (const DcpPiece& piece : tensor.pieces)
    chunks.push_back(metadata_object("ChunkStorageMetadata", {{"offsets", size_of(piece.offsets)},
                                                              {"sizes", size_of(piece.sizes)}}));
  Json properties = pickle_tuple(
      {pickle_global("torch." + std::string(tensor.dtype.name)),
       pickle_call("torch.serialization._get_layout", Json::array({"torch.strided"})),
       /*requires_grad*/ false,
       pickle_call("torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", Json::array({0})),
       /*pin_memory*/ false});
  return metadata_object(
      "TensorStorageMetadata",
      {{"properties", metadata_object("TensorProperties", std::move(properties))},
       {"size", size_of(tensor.shape)},
       {"chunks", std::move(chunks)}});
}

}  // namespace

DcpWriter::DcpWriter(std::filesystem::path folder, std::uint64_t max_file_bytes)
    : folder_(std::move(folder)), max_file_bytes_(max_file_bytes) {}

DcpPiece DcpWriter::append(DcpPiece piece, const Json& value,
                           std::optional<std::span<const std::byte>> storage) {
  if (!file_ || file_->position() >= max_file_bytes_) {
    if (file_) file_->close(/*sync=*/true);
    file_name_ = "__0_" + std::to_string(num_files_++) + ".distcp";
    file_.emplace(folder_ / file_name_);
  }
  file_->write(std::string((kAlignment - file_->position() % kAlignment) % kAlignment, '\0'));
  piece.file = file_name_;
  piece.bytes.begin = file_->position();
  write_torch_file(*file_, value, storage);
  piece.bytes.end = file_->position();
  return piece;
}

void DcpWriter::write(const std::string& name, const DcpTensor& part,
                      std::span<const std::byte> bytes) {
  DcpTensor& tensor = metadata_.tensors[name];
  tensor.dtype = part.dtype;
  tensor.shape = part.shape;
  const DcpPiece& piece = part.pieces.front();
  const TorchTensor content{.dtype = part.dtype, .shape = piece.sizes};
  MEGATRON_CHECK(
      bytes.size() == static_cast<std::uint64_t>(content.num_elements()) * part.dtype.element_size,
      "the bytes of a tensor are not those of its shape");
  tensor.pieces.push_back(append(piece, torch_tensor(content), bytes));
}

void DcpWriter::write_object(const std::string& name, const Json& value) {
  metadata_.objects[name] = append({}, value);
}

void DcpWriter::close() {
  if (file_) file_->close(/*sync=*/true);
  Json state = Json::object(), storage = Json::array();
  const auto add = [&](const std::string& name, const DcpPiece& piece, Json offset) {
    storage.push_back(metadata_object(
        "MetadataIndex", {{"fqn", name}, {"offset", std::move(offset)}, {"index", nullptr}}));
    storage.push_back(pickle_object("torch.distributed.checkpoint.filesystem._StorageInfo",
                                    {{"relative_path", piece.file},
                                     {"offset", piece.bytes.begin},
                                     {"length", piece.bytes.size()}}));
  };
  for (const auto& [name, tensor] : metadata_.tensors) {
    state[name] = metadata_of(tensor);
    for (const DcpPiece& piece : tensor.pieces) add(name, piece, size_of(piece.offsets));
  }
  for (const auto& [name, piece] : metadata_.objects) {
    state[name] = metadata_object("BytesStorageMetadata", Json::object());
    add(name, piece, nullptr);
  }
  const Json index = metadata_object("Metadata", {{"state_dict_metadata", std::move(state)},
                                                  {"planner_data", nullptr},
                                                  {"storage_data", pickle_dict(std::move(storage))},
                                                  {"storage_meta", nullptr},
                                                  {"version", "1.0.0"}});
  write_file(folder_ / ".metadata", pickle_of(index));
}

}  // namespace megatron
