// Reads slices of tensors from a native checkpoint folder. It verifies the bytes of each slice
// before their first use: the blocks of the piece that hold them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/weight_reader.h"

namespace megatron {

class ManifestReader : public WeightReader {
 public:
  /// Reads a folder whose manifest is parsed already.
  ManifestReader(std::filesystem::path folder, std::shared_ptr<const Manifest> manifest);
  explicit ManifestReader(const std::filesystem::path& folder)
      : ManifestReader(folder, std::make_shared<const Manifest>(read_manifest(folder))) {}

  const Manifest& manifest() const { return *manifest_; }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  const std::vector<WeightInfo>& states() const override { return states_; }
  /// Copies a slice of a weight, or of optimizer state under its name in the manifest.
  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override;

  /// Returns a piece's data after checking file, key, dtype, shape and the checksums of the bytes
  /// of `used`, a slice of the piece, or of all. UserErrors name file and tensor.
  at::Tensor piece_tensor(const std::string& name, const ManifestTensor& tensor, const Piece& piece,
                          const std::optional<TensorSlice>& used = {});
  const SafetensorsFile& file(const std::string& name);
  /// Returns the bytes that were verified so far.
  std::uint64_t verified_bytes() const { return verified_bytes_; }

 private:
  at::Tensor foreign_tensor(const ManifestTensor& tensor, const Piece& piece);
  /// Returns whether the blocks of a piece that hold a slice of it are as they were written.
  bool verify(const Piece& piece, std::span<const std::byte> bytes, const TensorSlice& used,
              std::uint64_t element_bytes);

  std::filesystem::path folder_;
  std::shared_ptr<const Manifest> manifest_;
  std::vector<WeightInfo> weights_, states_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, MappedFile> foreign_files_;
  std::set<std::pair<const Piece*, std::uint64_t>> verified_;  ///< pieces and numbers of blocks
  std::uint64_t verified_bytes_ = 0;
};

}  // namespace megatron
