// Writes folders of torch.distributed.checkpoint (DCP): pieces of tensors and objects in the files
// __0_NUMBER.distcp, each as torch.save writes it, and the index .metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "megatron/base/files.h"
#include "megatron/base/json_fwd.h"
#include "megatron/formats/dcp_metadata.h"

namespace megatron {

class DcpWriter {
 public:
  /// Begins another file when one has `max_file_bytes`.
  explicit DcpWriter(std::filesystem::path folder, std::uint64_t max_file_bytes = 5'000'000'000);
  /// Writes the only piece of `part`, whose elements in row-major order are `bytes`.
  void write(const std::string& name, const DcpTensor& part, std::span<const std::byte> bytes);
  /// Writes an object without tensors, as pickle_of() takes it.
  void write_object(const std::string& name, const Json& value);
  /// Flushes the files, then writes the index, without which nothing can be read.
  void close();

 private:
  /// Writes to the file that has room. Returns `piece` with the place of what it wrote.
  DcpPiece append(DcpPiece piece, const Json& value,
                  std::optional<std::span<const std::byte>> storage = std::nullopt);

  const std::filesystem::path folder_;
  const std::uint64_t max_file_bytes_;
  std::string file_name_;
  std::optional<FileWriter> file_;
  std::int64_t num_files_ = 0;
  DcpMetadata metadata_;
};

}  // namespace megatron
