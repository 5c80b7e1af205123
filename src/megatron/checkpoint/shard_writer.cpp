#include "megatron/checkpoint/shard_writer.h"

#include <unordered_map>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

std::uint64_t size_of(const WriteItem& piece) {
  return static_cast<std::uint64_t>(num_elements(piece.slice.shape)) * element_size(piece.type);
}

/// Returns the tensor's name when the piece is the whole tensor; else the name with the slice's
/// offset.
std::string key_of(const WriteItem& piece) {
  return piece.slice.shape == piece.global_shape
             ? piece.name
             : piece.name + "@" + shape_text(piece.slice.global_offset);
}

std::string shard_name(const ShardFileOptions& files, std::size_t part) {
  const std::string number = format("_%05lld", static_cast<long long>(files.rank));
  return files.prefix + number + (part == 0 ? "" : format("_%03zu", part)) + ".safetensors";
}

/// Groups consecutive pieces that fit into one file.
std::vector<std::vector<WriteItem>> group_by_file(std::vector<WriteItem> pieces,
                                                  std::uint64_t max_shard_bytes) {
  std::vector<std::vector<WriteItem>> groups;
  std::uint64_t used = 0;
  for (WriteItem& piece : pieces) {
    const std::uint64_t size = size_of(piece);
    if (groups.empty() || used + size > max_shard_bytes) {
      groups.emplace_back();
      used = 0;
    }
    used += size;
    groups.back().push_back(std::move(piece));
  }
  return groups;
}

void write_file(const std::filesystem::path& folder, const std::string& name,
                const std::vector<WriteItem>& pieces, Manifest& manifest, FileSystem& file_system) {
  std::vector<TensorHeader> headers;
  std::unordered_map<std::string, const WriteItem*> by_key;
  for (const WriteItem& piece : pieces) {
    headers.push_back({key_of(piece), piece.type, piece.slice.shape});
    by_key.emplace(headers.back().name, &piece);
  }
  SafetensorsWriter writer(folder / name, std::move(headers), {{"format", "pt"}}, file_system);
  manifest.headers[name] = writer.header_checksum();
  for (const TensorHeader& head : writer.order()) {
    const WriteItem& piece = *by_key.at(head.name);
    const at::Tensor content = contiguous_cpu(piece.tensor());
    MEGATRON_CHECK(to_safetensors_dtype(content.scalar_type()) == piece.type, piece.name, " is ",
                   content.scalar_type(), ", not ", safetensors_dtype_name(piece.type));
    const auto bytes = tensor_bytes(content);
    writer.write(bytes);
    ManifestTensor& tensor = manifest.tensors[piece.name];
    tensor.kind = piece.kind;
    tensor.is_frozen = piece.is_frozen;
    tensor.type = piece.type;
    tensor.shape = piece.global_shape;
    tensor.pieces.push_back(
        {name, head.name, slice_at(piece.slice.global_offset, piece.slice.shape), checksum(bytes)});
  }
  writer.close();
}

}  // namespace

std::uint64_t num_bytes(const std::vector<WriteItem>& pieces) {
  std::uint64_t total = 0;
  for (const WriteItem& piece : pieces) total += size_of(piece);
  return total;
}

void write_shard_files(const std::filesystem::path& folder, const ShardFileOptions& files,
                       std::vector<WriteItem> pieces, Manifest& manifest, FileSystem& file_system) {
  const auto groups = group_by_file(std::move(pieces), files.max_shard_bytes);
  for (std::size_t part = 0; part < groups.size(); ++part)
    write_file(folder, shard_name(files, part), groups[part], manifest, file_system);
}

}  // namespace megatron
