#include "megatron/checkpoint/megatron_lm/torch_dist.h"

#include <memory>
#include <optional>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/formats/dcp_metadata.h"

namespace megatron {
namespace {

constexpr const char *kIndex = ".metadata", *kCommonFile = "common.pt",
                     *kCommonState = "common_state/shard_0_1",
                     *kEmbedding = "embedding.word_embeddings.weight";

/// The files of a folder, mapped once.
class MappedFolder {
 public:
  explicit MappedFolder(fs::path folder) : folder_(std::move(folder)) {}
  const MappedFile& file(const std::string& name) {
    const auto [place, is_new] = files_.try_emplace(name);
    if (is_new) place->second = MappedFile(folder_ / name);
    return place->second;
  }

 private:
  fs::path folder_;
  std::map<std::string, MappedFile> files_;
};

/// Returns the part that a piece of a tensor of shape [parts of each axis …, elements of a part]
/// has elements of, which is how Megatron-LM saves flat states of optimizers.
TensorSlice flat_part(const DcpTensor& tensor, const DcpPiece& piece, const std::string& place) {
  const Shape& whole = tensor.original_shape;
  Shape offset, part;
  bool is_valid = tensor.shape.size() == whole.size() + 1;
  for (std::size_t i = 0; is_valid && i < whole.size(); ++i) {
    is_valid = tensor.shape[i] > 0 && whole[i] % tensor.shape[i] == 0 && piece.sizes[i] == 1;
    part.push_back(is_valid ? whole[i] / tensor.shape[i] : 0);
    offset.push_back(piece.offsets[i] * part[i]);
  }
  if (!is_valid || num_elements(part) != tensor.shape.back())
    throw UserError({place, shape_text(tensor.shape) + " is no flat form of " + shape_text(whole),
                     "save the checkpoint again with a newer Megatron-LM"});
  return slice_at(std::move(offset), std::move(part));
}

ManifestTensor tensor_of(const DcpTensor& tensor, MappedFolder& folder, const std::string& place) {
  const bool is_flat = !tensor.original_shape.empty();
  ManifestTensor result{.type = safetensors_dtype(tensor.dtype, place),
                        .shape = is_flat ? tensor.original_shape : tensor.shape};
  for (const DcpPiece& piece : tensor.pieces) {
    const MappedFile& file = folder.file(piece.file);
    const std::string where = file.path().string() + ": " + place;
    StoredElements stored =
        stored_elements(read_dcp_tensor(file.bytes(), tensor, piece, where), piece.file, where);
    if (is_flat) stored.runs.front().first = piece.offsets.back();
    const TensorSlice slice =
        is_flat ? flat_part(tensor, piece, place) : slice_at(piece.offsets, piece.sizes);
    MEGATRON_CHECK(add_pieces(stored, slice.shape, slice, result.pieces), where);
  }
  return result;
}

/// Reads what is not sharded: a file of its own, or an object of DCP.
TorchFile common_state(const fs::path& folder, const DcpMetadata& index, MappedFolder& files) {
  const auto object = index.objects.find(kCommonState);
  if (object != index.objects.end()) {
    const MappedFile& file = files.file(object->second.file);
    return open_dcp_piece(file.bytes(), object->second, file.path().string());
  }
  if (!fs::exists(folder / kCommonFile))
    throw UserError({folder.string() + ": it has neither " + kCommonFile + " nor " + kCommonState,
                     "the architecture of its model is not known",
                     "load a checkpoint that Megatron-LM saved"});
  return open_torch_file(folder / kCommonFile);
}

}  // namespace

bool is_torch_dist_folder(const fs::path& folder) {
  return fs::exists(folder / kIndex) || fs::exists(folder / "metadata.json");
}

Manifest describe_torch_dist(const fs::path& folder) {
  const std::string place = folder.string();
  const auto format = read_megatron_folder_format(folder);
  if (!format)
    throw UserError({place + ": metadata.json is missing",
                     "the save was not completed, or torch.distributed.checkpoint wrote it alone",
                     "load another iteration with --ckpt-step"});
  if (format->sharded_backend != "torch_dist")
    throw UserError({place + ": format '" + format->sharded_backend + "'", "is not supported",
                     "load it with Megatron-LM and save it with --ckpt-format torch_dist"});
  const DcpMetadata index = read_dcp_metadata(folder);
  MappedFolder files(folder);
  const TorchFile common = common_state(folder, index, files);
  Manifest manifest;
  ForeignTensors tensors;
  for (const auto& [name, tensor] : index.tensors)
    tensors.emplace(name, tensor_of(tensor, files, "tensor '" + name + "'"));
  const auto embedding = tensors.find(kEmbedding);
  if (embedding == tensors.end() || embedding->second.shape.empty())
    throw UserError({place + ": there is no " + kEmbedding, "", "load a checkpoint of a GPT"});
  const DeclaredTensors declared =
      describe_saved_args(common.root(), embedding->second.shape.front(), place, manifest);
  add_torch_dist_tensors(tensors, declared, place, manifest);
  return manifest;
}

}  // namespace megatron
