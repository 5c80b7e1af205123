// Reads the index of a checkpoint of torch.distributed.checkpoint (DCP), the pickle ".metadata",
// and the pieces that it names in the files __RANK_NUMBER.distcp, each of which is a file of
// torch.save. Megatron's torch_dist folders are such checkpoints; what they add is read here too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/formats/torch_file.h"

namespace megatron {

/// A part of a tensor, or a whole object, and where it is stored.
struct DcpPiece {
  std::vector<std::int64_t> offsets = {}, sizes = {};  ///< of a part; empty for an object
  std::string file = {};                               ///< relative to the folder
  ByteRange bytes = {};
  std::vector<std::string> transforms = {};  ///< what was applied to the bytes, such as "zstd"
};

struct DcpTensor {
  TorchDtype dtype = {};
  std::vector<std::int64_t> shape = {};
  std::vector<DcpPiece> pieces = {};  ///< inside of `shape`; whether they tile it is not checked
  /// The shape before Megatron flattened the last axes of some tensors of old checkpoints; else
  /// empty.
  std::vector<std::int64_t> original_shape = {};
};

struct DcpMetadata {
  std::map<std::string, DcpTensor> tensors;
  std::map<std::string, DcpPiece> objects;
};

/// Parses a pickle of the class Metadata, of any version of PyTorch from 1.13 on. Throws a
/// UserError that names `source` and the tensor, also for a tensor or object without stored bytes
/// and for stored bytes without one.
DcpMetadata parse_dcp_metadata(std::string_view pickle, const std::string& source);

/// Reads folder/.metadata.
DcpMetadata read_dcp_metadata(const std::filesystem::path& folder);

/// Reads the file of torch.save that a piece is. `file` has the bytes of the piece's file; `source`
/// names it. Ranges of bytes are those of the whole file.
TorchFile open_dcp_piece(std::span<const std::byte> file, const DcpPiece& piece,
                         const std::string& source);

/// Returns the tensor that a piece of `tensor` holds. Throws a UserError unless it has the dtype
/// and the sizes of the index.
TorchTensor read_dcp_tensor(std::span<const std::byte> file, const DcpTensor& tensor,
                            const DcpPiece& piece, const std::string& source);

/// What Megatron's metadata.json says of a folder. Its presence shows that the save was completed.
struct MegatronFolderFormat {
  std::string sharded_backend = {};  ///< "torch_dist"; "zarr" in old checkpoints
  std::int64_t sharded_backend_version = 0;
  std::string common_backend = {};  ///< "torch": common.pt; "" where DCP has `common_state`
  std::int64_t common_backend_version = 0;
};

/// Reads folder/metadata.json; nullopt if there is none.
std::optional<MegatronFolderFormat> read_megatron_folder_format(
    const std::filesystem::path& folder);

}  // namespace megatron
