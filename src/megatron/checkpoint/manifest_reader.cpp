#include "megatron/checkpoint/manifest_reader.h"

#include <algorithm>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

constexpr const char* kOtherIteration =
    "load another iteration with --ckpt-step (`megatron checkpoint verify --all DIR` says which "
    "are whole)";

}  // namespace

ManifestReader::ManifestReader(std::filesystem::path folder,
                               std::shared_ptr<const Manifest> manifest)
    : folder_(std::move(folder)), manifest_(std::move(manifest)) {
  for (const auto& [name, tensor] : manifest_->tensors) {
    const std::string place = (folder_ / kManifestFile).string() + ": tensor '" + name + "'";
    const at::ScalarType type = to_scalar_type(tensor.type, place);
    if (tensor.kind == TensorKind::weight) weights_.push_back({name, tensor.shape, type});
    if (tensor.kind == TensorKind::state) states_.push_back({name, tensor.shape, type});
  }
}

const SafetensorsFile& ManifestReader::file(const std::string& name) {
  auto& file = files_[name];
  if (file) return *file;
  auto opened = std::make_unique<SafetensorsFile>(folder_ / name);
  const auto expected = manifest_->headers.find(name);
  if (expected != manifest_->headers.end() &&
      checksum(opened->header_bytes()) != expected->second) {
    throw UserError({opened->path().string() + ": checksum of the header does not match",
                     "the data changed since it was written", kOtherIteration});
  }
  file = std::move(opened);
  return *file;
}

at::Tensor ManifestReader::foreign_tensor(const ManifestTensor& tensor, const Piece& piece) {
  const auto [place, is_new] = foreign_files_.try_emplace(piece.file);
  if (is_new) place->second = MappedFile(folder_ / piece.file);
  const MappedFile& file = place->second;
  const auto size =
      static_cast<std::uint64_t>(num_elements(piece.slice.shape)) * element_size(tensor.type);
  if (*piece.offset > file.size() || file.size() - *piece.offset < size)
    throw UserError({file.path().string() + ": the file is shorter than it was",
                     std::to_string(file.size()) + " bytes", kOtherIteration});
  return view_bytes(file.bytes().subspan(*piece.offset, size),
                    to_scalar_type(tensor.type, file.path().string()), piece.slice.shape);
}

bool ManifestReader::verify(const Piece& piece, std::span<const std::byte> bytes,
                            const TensorSlice& used, std::uint64_t element_bytes) {
  if (num_elements(used.shape) == 0) return true;
  const std::uint64_t largest = kChecksumBlockBytes, size = bytes.size();
  const bool has_blocks = piece.blocks.size() == (size + largest - 1) / largest;
  const std::uint64_t step = has_blocks ? largest : size;
  // An index of an axis whose stride is a block or more has blocks that its neighbours may lack.
  std::size_t num_outer = 0;
  std::int64_t stride = num_elements(piece.slice.shape), num_runs = 1;
  for (; num_outer < used.shape.size(); ++num_outer) {
    stride /= piece.slice.shape[num_outer];
    if (static_cast<std::uint64_t>(stride) * element_bytes < step) break;
    num_runs *= used.shape[num_outer];
  }
  for (std::int64_t run = 0; run < num_runs; ++run) {
    // Elements of the piece that are used, and some in between, less than a block each time.
    std::int64_t first = 0, last = 0, later_runs = num_runs;
    for (std::size_t dim = 0; dim < used.shape.size(); ++dim) {
      std::int64_t low = used.local_offset[dim], high = low + used.shape[dim] - 1;
      if (dim < num_outer) {
        later_runs /= used.shape[dim];
        low = high = low + run / later_runs % used.shape[dim];
      }
      first = first * piece.slice.shape[dim] + low;
      last = last * piece.slice.shape[dim] + high;
    }
    for (std::uint64_t block = static_cast<std::uint64_t>(first) * element_bytes / step;
         block <= static_cast<std::uint64_t>(last) * element_bytes / step; ++block) {
      if (verified_.contains({&piece, block})) continue;
      const auto part = bytes.subspan(block * step, std::min(step, size - block * step));
      if (checksum(part) != (has_blocks ? piece.blocks[block] : piece.checksum)) return false;
      verified_.emplace(&piece, block);
      verified_bytes_ += part.size();
    }
  }
  return true;
}

at::Tensor ManifestReader::piece_tensor(const std::string& name, const ManifestTensor& tensor,
                                        const Piece& piece,
                                        const std::optional<TensorSlice>& used) {
  if (piece.offset) return foreign_tensor(tensor, piece);
  const SafetensorsFile& source = file(piece.file);
  const std::string place = source.path().string() + ": tensor '" + name + "'";
  const StoredTensor* stored = source.find(piece.key);
  if (stored == nullptr)
    throw UserError(
        {place + ": missing", "the manifest names key '" + piece.key + "'", kOtherIteration});
  if (stored->type != tensor.type || stored->shape != piece.slice.shape) {
    throw UserError({place + ": dtype or shape differs from the manifest",
                     std::string(safetensors_dtype_name(stored->type)) + " " +
                         shape_text(stored->shape) + ", the manifest says " +
                         std::string(safetensors_dtype_name(tensor.type)) + " " +
                         shape_text(piece.slice.shape),
                     kOtherIteration});
  }
  if (!verify(piece, source.bytes(*stored), used.value_or(whole_slice(piece.slice.shape)),
              element_size(tensor.type))) {
    throw UserError({place + ": checksum does not match", "the data changed since it was written",
                     kOtherIteration});
  }
  return view_tensor(source, *stored);
}

void ManifestReader::copy_slice(const std::string& name, const TensorSlice& slice,
                                at::Tensor destination) {
  const ManifestTensor& tensor = manifest_->tensors.at(name);
  const TensorSlice wanted = slice_at(slice.global_offset, slice.shape);
  for (const Piece& piece : tensor.pieces) {
    const auto from = intersect(piece.slice, wanted), to = intersect(wanted, piece.slice);
    if (!from || !to) continue;
    narrow_to(destination, to->local_offset, to->shape)
        .copy_(narrow_to(piece_tensor(name, tensor, piece, from), from->local_offset, from->shape));
  }
}

}  // namespace megatron
