#include "megatron/checkpoint/shard_writer.h"

#include <algorithm>
#include <map>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>

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

at::Tensor content_of(const WriteItem& piece) {
  at::Tensor content = contiguous_cpu(piece.tensor());
  MEGATRON_CHECK(to_safetensors_dtype(content.scalar_type()) == piece.type, piece.name, " is ",
                 content.scalar_type(), ", not ", safetensors_dtype_name(piece.type));
  return content;
}

/// Returns whether a checkpoint holds the bytes of a piece in the same place.
bool has_bytes(const Manifest& manifest, const std::string& tensor, const Piece& bytes) {
  const auto found = manifest.tensors.find(tensor);
  return found != manifest.tensors.end() &&
         std::ranges::any_of(found->second.pieces, [&](const Piece& piece) {
           return piece.file == bytes.file && piece.key == bytes.key &&
                  piece.checksum == bytes.checksum;
         });
}

const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

/// A file to write, with the pieces that it holds.
class ShardFile {
 public:
  ShardFile(std::string name, const std::vector<WriteItem>& pieces) : name_(std::move(name)) {
    for (const WriteItem& piece : pieces) {
      headers_.push_back({key_of(piece), piece.type, piece.slice.shape});
      by_key_.emplace(headers_.back().name, &piece);
    }
    sort_for_writing(headers_);
  }

  void write(const std::filesystem::path& folder, const std::atomic<bool>* is_given_up,
             Manifest& manifest, FileSystem& files) const {
    SafetensorsWriter writer(folder / name_, headers_, kMetadata, files);
    manifest.headers[name_] = writer.header_checksum();
    for (const TensorHeader& head : writer.order()) {
      if (is_given_up != nullptr && *is_given_up)
        throw UserError({(folder / name_).string(), "the save was given up", ""});
      const WriteItem& piece = *by_key_.at(head.name);
      const at::Tensor content = content_of(piece);
      const auto bytes = tensor_bytes(content);
      writer.write(bytes);
      record(piece, stored_piece(piece, head.name, bytes), manifest);
    }
    writer.close();
  }

  /// Links the file of the same name and content. Returns false where that cannot be done.
  bool link(const SavedFolder& before, const std::filesystem::path& folder, Manifest& manifest,
            FileSystem& files) const {
    const auto header = before.manifest.headers.find(name_);
    const std::string text = safetensors_header(headers_, kMetadata);
    if (header == before.manifest.headers.end() || header->second != checksum(text)) return false;
    std::uint64_t size = text.size();
    std::vector<Piece> pieces;
    for (const TensorHeader& head : headers_) {
      const WriteItem& piece = *by_key_.at(head.name);
      size += head.num_bytes();
      pieces.push_back(stored_piece(piece, head.name, tensor_bytes(content_of(piece))));
      if (!has_bytes(before.manifest, piece.name, pieces.back())) return false;
    }
    const std::filesystem::path old = before.path / name_;
    std::error_code error;
    if (std::filesystem::file_size(old, error) != size || files.link(old, folder / name_) != 0)
      return false;
    manifest.headers[name_] = header->second;
    for (std::size_t i = 0; i < headers_.size(); ++i)
      record(*by_key_.at(headers_[i].name), std::move(pieces[i]), manifest);
    return true;
  }

 private:
  Piece stored_piece(const WriteItem& piece, const std::string& key,
                     std::span<const std::byte> bytes) const {
    Piece stored{.file = name_,
                 .key = key,
                 .slice = slice_at(piece.slice.global_offset, piece.slice.shape),
                 .checksum = checksum(bytes)};
    if (bytes.size() <= kChecksumBlockBytes) return stored;
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kChecksumBlockBytes, bytes.size())))
      stored.blocks.push_back(checksum(bytes.first(std::min(kChecksumBlockBytes, bytes.size()))));
    return stored;
  }
  static void record(const WriteItem& piece, Piece stored, Manifest& manifest) {
    ManifestTensor& tensor = manifest.tensors[piece.name];
    tensor.kind = piece.kind;
    tensor.is_frozen = piece.is_frozen;
    tensor.type = piece.type;
    tensor.shape = piece.global_shape;
    tensor.pieces.push_back(std::move(stored));
  }

  std::string name_;
  std::vector<TensorHeader> headers_;  ///< in the order of the file
  std::unordered_map<std::string, const WriteItem*> by_key_;
};

}  // namespace

std::uint64_t num_bytes(const std::vector<WriteItem>& pieces) {
  std::uint64_t total = 0;
  for (const WriteItem& piece : pieces) total += size_of(piece);
  return total;
}

void write_shard_files(const std::filesystem::path& folder, const ShardFileOptions& files,
                       std::vector<WriteItem> pieces, Manifest& manifest, FileSystem& file_system) {
  const auto groups = group_by_file(std::move(pieces), files.max_shard_bytes);
  for (std::size_t part = 0; part < groups.size(); ++part) {
    const ShardFile file(shard_name(files, part), groups[part]);
    if (files.before == nullptr || !file.link(*files.before, folder, manifest, file_system))
      file.write(folder, files.is_given_up, manifest, file_system);
  }
}

}  // namespace megatron
