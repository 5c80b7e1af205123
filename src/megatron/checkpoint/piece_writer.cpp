#include "megatron/checkpoint/piece_writer.h"

#include <cstdio>
#include <unordered_map>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

std::uint64_t size_of(const PieceToWrite& piece) { return static_cast<std::uint64_t>(num_elements(piece.region.shape)) * element_bytes(piece.type); }

/// The tensor's own name when the piece is the whole tensor; else with the box's offset.
std::string key_of(const PieceToWrite& piece) {
  return piece.region.shape == piece.global_shape ? piece.name : piece.name + "@" + shape_text(piece.region.offset);
}

std::string file_name(const PieceFiles& files, std::size_t part) {
  char number[32];
  if (part == 0) {
    std::snprintf(number, sizeof number, "_%05lld", static_cast<long long>(files.rank));
  } else {
    std::snprintf(number, sizeof number, "_%05lld_%03zu", static_cast<long long>(files.rank), part);
  }
  return files.prefix + number + ".safetensors";
}

/// Consecutive pieces that fit into one file.
std::vector<std::vector<PieceToWrite>> into_files(std::vector<PieceToWrite> pieces, std::uint64_t most_bytes) {
  std::vector<std::vector<PieceToWrite>> groups;
  std::uint64_t used = 0;
  for (PieceToWrite& piece : pieces) {
    const std::uint64_t size = size_of(piece);
    if (groups.empty() || used + size > most_bytes) {
      groups.emplace_back();
      used = 0;
    }
    used += size;
    groups.back().push_back(std::move(piece));
  }
  return groups;
}

void write_file(const std::filesystem::path& folder, const std::string& name, const std::vector<PieceToWrite>& pieces, Manifest& manifest,
                FileSystem& through) {
  std::vector<TensorHead> heads;
  std::unordered_map<std::string, const PieceToWrite*> by_key;
  for (const PieceToWrite& piece : pieces) {
    heads.push_back({key_of(piece), piece.type, piece.region.shape});
    by_key.emplace(heads.back().name, &piece);
  }
  SafetensorsWriter writer(folder / name, std::move(heads), {{"format", "pt"}}, through);
  manifest.headers[name] = writer.header_checksum();
  for (const TensorHead& head : writer.order()) {
    const PieceToWrite& piece = *by_key.at(head.name);
    const at::Tensor content = packed(piece.tensor());
    MEGATRON_CHECK(stored_type_of(content.scalar_type()) == piece.type, "piece of ", piece.name, " has another type than planned");
    const auto bytes = bytes_of(content);
    writer.write(bytes);
    ManifestTensor& tensor = manifest.tensors[piece.name];
    tensor.kind = piece.kind;
    tensor.type = piece.type;
    tensor.shape = piece.global_shape;
    tensor.pieces.push_back({name, head.name, piece.region, checksum(bytes)});
  }
  writer.close();
}

}  // namespace

std::uint64_t num_bytes(const std::vector<PieceToWrite>& pieces) {
  std::uint64_t total = 0;
  for (const PieceToWrite& piece : pieces) total += size_of(piece);
  return total;
}

void write_pieces(const std::filesystem::path& folder, const PieceFiles& files, std::vector<PieceToWrite> pieces, Manifest& manifest,
                  FileSystem& through) {
  const auto groups = into_files(std::move(pieces), files.most_bytes);
  for (std::size_t part = 0; part < groups.size(); ++part) write_file(folder, file_name(files, part), groups[part], manifest, through);
}

}  // namespace megatron
