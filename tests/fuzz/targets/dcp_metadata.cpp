// The index of a distributed checkpoint of PyTorch. The input is the pickle.
#include "megatron/formats/dcp_metadata.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_dcp_metadata(std::string_view input) {
  const DcpMetadata metadata = megatron::parse_dcp_metadata(input, ".metadata");
  for (const auto& [name, tensor] : metadata.tensors)
    for (const DcpPiece& piece : tensor.pieces) {
      require(piece.sizes.size() == tensor.shape.size(), "a piece has other axes");
      require(piece.bytes.begin <= piece.bytes.end, "a piece runs backwards");
      require(!piece.file.starts_with('/'), "a piece lies outside of the folder");
    }
}

}  // namespace megatron::fuzz
