// Writes slices of global tensors into safetensors files of bounded size and says where they lie.
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
struct WriteItem {
  std::string name = {};
  TensorKind kind = TensorKind::weight;
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape global_shape = {};
  Region region = {};
  std::function<at::Tensor()> tensor = {};
};

struct ShardFileOptions {
  std::string prefix = "weights";  ///< weights_00000.safetensors, weights_00000_001.safetensors, …
  std::int64_t rank = 0;
  std::uint64_t max_shard_bytes = std::uint64_t{4}
                                  << 30;  ///< of one file, unless a single piece is larger
};

std::uint64_t num_bytes(const std::vector<WriteItem>& pieces);

/// Writes the pieces below `folder` through `file_system` and records them, and the files' headers,
/// in `manifest`.
void write_shard_files(const std::filesystem::path& folder, const ShardFileOptions& files,
                       std::vector<WriteItem> pieces, Manifest& manifest,
                       FileSystem& file_system = default_file_system());

}  // namespace megatron
