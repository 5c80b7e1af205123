// Writes boxes of global tensors into safetensors files of bounded size and says where they lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/manifest.h"

namespace megatron {

/// A box of a global tensor that is to be written. `tensor` is called once, when its turn comes.
struct PieceToWrite {
  std::string name = {};
  TensorKind kind = TensorKind::weight;
  StoredType type = StoredType::F32;
  Shape global_shape = {};
  Region region = {};
  std::function<at::Tensor()> tensor = {};
};

struct PieceFiles {
  std::string prefix = "weights";  ///< weights_00000.safetensors, weights_00000_001.safetensors, …
  std::int64_t rank = 0;
  std::uint64_t most_bytes = std::uint64_t{4} << 30;  ///< of one file, unless a single piece is larger
};

std::uint64_t num_bytes(const std::vector<PieceToWrite>& pieces);

/// Writes the pieces below `folder` through `through` and records them, and the files' headers, in `manifest`.
void write_pieces(const std::filesystem::path& folder, const PieceFiles& files, std::vector<PieceToWrite> pieces, Manifest& manifest,
                  FileSystem& through = disk());

}  // namespace megatron
