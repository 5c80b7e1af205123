#include "megatron/checkpoint/megatron_lm/torch_dist.h"

#include <memory>
#include <optional>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"
#include "megatron/checkpoint/megatron_lm/saved_args.h"
#include "megatron/checkpoint/piece_slices.h"
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

/// Returns the slices of a piece of a tensor of shape [parts of each axis …, elements of a part],
/// which is how Megatron-LM saves flat states of optimizers. They follow each other in the piece.
std::vector<TensorSlice> flat_slices(const DcpTensor& tensor, const DcpPiece& piece,
                                     const std::string& place) {
  const Shape& whole = tensor.original_shape;
  const std::size_t num_axes = whole.size();
  Shape part;
  bool is_valid = tensor.shape.size() == num_axes + 1;
  for (std::size_t i = 0; is_valid && i < num_axes; ++i) {
    is_valid = tensor.shape[i] > 0 && whole[i] % tensor.shape[i] == 0 && piece.sizes[i] == 1;
    if (is_valid) part.push_back(whole[i] / tensor.shape[i]);
  }
  if (!is_valid || num_elements(part) != tensor.shape.back())
    throw UserError({place, shape_text(tensor.shape) + " is no flat form of " + shape_text(whole),
                     "save the checkpoint again with a newer Megatron-LM"});
  std::vector<TensorSlice> slices;
  for (const TensorSlice& slice :
       flat_range_slices(part, piece.offsets.back(), piece.sizes.back())) {
    Shape offset = slice.global_offset;
    for (std::size_t i = 0; i < num_axes; ++i) offset[i] += piece.offsets[i] * part[i];
    slices.push_back(slice_at(offset, slice.shape));
  }
  return slices;
}

ForeignTensor tensor_of(const DcpTensor& tensor, MappedFolder& folder, const std::string& place) {
  const bool is_flat = !tensor.original_shape.empty();
  ForeignTensor result{.type = safetensors_dtype(tensor.dtype, place),
                       .shape = is_flat ? tensor.original_shape : tensor.shape};
  for (const DcpPiece& piece : tensor.pieces) {
    const MappedFile& file = folder.file(piece.file);
    const TorchTensor stored =
        read_dcp_tensor(file.bytes(), tensor, piece, file.path().string() + ": " + place);
    if (!stored.is_contiguous())
      throw UserError({file.path().string() + ": " + place, "its elements are not in order", ""});
    std::uint64_t offset = stored.bytes().begin;
    for (TensorSlice& slice : is_flat ? flat_slices(tensor, piece, place)
                                      : std::vector{slice_at(piece.offsets, piece.sizes)}) {
      const auto size = static_cast<std::uint64_t>(num_elements(slice.shape));
      result.pieces.push_back({.file = piece.file, .slice = std::move(slice), .offset = offset});
      offset += size * tensor.dtype.element_size;
    }
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
  return TorchFile(files.file(kCommonFile).bytes(), (folder / kCommonFile).string());
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
