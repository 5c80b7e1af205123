// Reads the structure of files of torch.save, today's (a zip archive of stored records) and those
// of PyTorch before 1.6: what was saved as a pickle, and where its tensors' bytes lie, which the
// caller reads. Writes today's. https://pytorch.org/docs/stable/notes/serialization.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/formats/pickle.h"
#include "megatron/formats/zip_directory.h"

namespace megatron {

struct TorchDtype {
  std::string_view name = "float32";  ///< as in torch.float32
  std::uint64_t element_size = 4;
  bool operator==(const TorchDtype&) const = default;
};

/// Returns the dtype of a name, "float32" or "torch.float32"; nullopt if there is none.
std::optional<TorchDtype> find_torch_dtype(std::string_view name);

/// A tensor in a file. All of its elements lie in its storage, which other tensors may share.
struct TorchTensor {
  TorchDtype dtype = {};
  std::vector<std::int64_t> shape = {}, strides = {};  ///< strides in elements, at least 0
  std::int64_t storage_offset = 0;                     ///< in elements
  std::string storage_key = {};
  ByteRange storage = {};

  std::int64_t num_elements() const;
  /// Returns whether the elements follow each other in row-major order.
  bool is_contiguous() const;
  /// Returns the bytes from the first element to the last.
  ByteRange bytes() const;
};

struct NamedTensor {
  std::string name;  ///< keys and indices on the way to it, joined with "."
  TorchTensor tensor;
};

class TorchFile {
 public:
  /// Reads what torch.save wrote into `bytes`, and keeps no reference to them. All ranges of bytes
  /// are counted from `origin` before `bytes`, so that a file within a file gets those of the
  /// whole. Throws a UserError that names `source`.
  TorchFile(std::span<const std::byte> bytes, const std::string& source, std::uint64_t origin = 0);

  /// Returns what was saved.
  const PickleValue& root() const { return pickle_.root(); }
  /// Returns the tensor that a value is, also as a Parameter; nullopt for another value. Throws a
  /// UserError for kinds of tensors that are not supported (sparse, quantized, nested, meta).
  std::optional<TorchTensor> tensor(const PickleValue& value) const;
  /// Returns the tensors in nested dicts, lists and tuples, in order. One that the value holds
  /// twice is there twice. UserError for nesting without end.
  std::vector<NamedTensor> tensors(const PickleValue& value) const;

 private:
  void read_zip(std::span<const std::byte> bytes, std::uint64_t origin);
  void read_legacy(std::span<const std::byte> bytes, std::uint64_t origin);
  TorchTensor rebuilt(std::string_view function, const PickleValue& args) const;

  std::string source_;
  Pickle pickle_;
  std::map<std::string, ByteRange> storages_;  ///< by key
};

/// Reads a file, whose path is the source of messages.
TorchFile open_torch_file(const std::filesystem::path& path);

/// Returns a tensor, of which only dtype and shape are read, as pickle_of() takes it. Its elements
/// are the storage of its file, in row-major order.
Json torch_tensor(const TorchTensor& tensor);

/// Appends the file of torch.save(value) to `file`, for a value that pickle_of() takes. `storage`
/// is that of the only tensor in it.
void write_torch_file(FileWriter& file, const Json& value,
                      std::optional<std::span<const std::byte>> storage = std::nullopt);

}  // namespace megatron
