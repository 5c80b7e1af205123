// Writes slices of global tensors to safetensors files of bounded size and records their places.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/checkpoint/manifest.h"

namespace megatron {

/// A slice of a global tensor to write. `tensor` is called once, when the slice is written, and
/// returns the slice alone.
struct WriteItem {
  std::string name = {};
  TensorKind kind = TensorKind::weight;
  bool is_frozen = false;
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape global_shape = {};
  TensorSlice slice = {};
  std::function<at::Tensor()> tensor = {};
};

/// A checkpoint that is on the disk.
struct SavedFolder {
  std::filesystem::path path = {};
  Manifest manifest = {};
};

struct ShardFileOptions {
  std::string prefix = "weights";  ///< weights_00000.safetensors, weights_00000_001.safetensors, …
  std::int64_t rank = 0;
  /// A file that this checkpoint holds already, with the same bytes, is not written again: it gets
  /// a second name. May be null.
  const SavedFolder* before = nullptr;
  /// Once true, the next piece is not written: the call throws a UserError. May be null.
  const std::atomic<bool>* is_given_up = nullptr;
  std::uint64_t max_shard_bytes = std::uint64_t{4} << 30;  ///< per file; a larger slice gets a
                                                           ///< file of its own
};

/// Returns the total size of the slices in bytes.
std::uint64_t num_bytes(const std::vector<WriteItem>& pieces);

/// Writes the pieces to files in `folder` through `file_system`, and records the pieces and the
/// files' header checksums in `manifest`. With `before`, `tensor` of a piece may be called twice.
void write_shard_files(const std::filesystem::path& folder, const ShardFileOptions& files,
                       std::vector<WriteItem> pieces, Manifest& manifest,
                       FileSystem& file_system = default_file_system());

}  // namespace megatron
