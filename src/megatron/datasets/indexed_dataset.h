// Reads token sequences in Megatron's format. `prefix.bin` holds the concatenated tokens;
// `prefix.idx` holds lengths, byte offsets and documents. Format: docs/formats/indexed_dataset.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/base/files.h"
#include "megatron/base/once.h"
#include "megatron/base/storage/remote_storage.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

/// Element types; the values are the codes in the .idx header.
enum class TokenDtype : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float64 = 6,
  float32 = 7,
  uint16 = 8
};

std::size_t token_dtype_size(TokenDtype type);
std::string_view token_dtype_name(TokenDtype type);
/// Returns Megatron's type for a vocabulary: uint16 below 65,500 ids, else int32.
TokenDtype optimal_token_dtype(std::int64_t vocab_size);

struct IndexedDatasetOptions {
  bool mmap = true;             ///< maps a local .bin file; else it is read with pread
  bool multimodal = false;      ///< expects one mode byte per sequence at the end of the index
  bool partial = false;         ///< allows an index that does not cover the whole .bin file
  StorageOptions storage = {};  ///< of prefixes that begin with s3://, http:// or https://
};

/// A reader of one `prefix.{bin,idx}`, on a local disk or in an object store: then the index is
/// copied as a whole, and the .bin file in chunks when they are read. The constructor checks the
/// sizes and the ends of the index in constant time; check() checks every entry. Every read checks
/// its entry again, because files may change during a run. UserErrors name file, entry and value.
class IndexedDataset : public TokenSource {
 public:
  explicit IndexedDataset(std::string prefix, const IndexedDatasetOptions& options = {});

  std::string name() const override { return prefix_; }
  UnalignedView<std::int32_t> sequence_lengths() const override { return lengths_; }
  void check() const override;
  void read(std::int64_t sequence, std::int64_t offset,
            std::span<std::int64_t> tokens) const override;

  TokenDtype type() const { return type_; }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t num_documents() const {
    return static_cast<std::int64_t>(document_indices_.size()) - 1;
  }
  /// Returns the sum of all lengths. It reads the whole index.
  std::int64_t num_tokens() const;
  /// Returns the byte offset of every sequence in the .bin file.
  UnalignedView<std::int64_t> sequence_pointers() const { return pointers_; }
  /// Returns documents + 1 entries: the first sequence of every document, then the number of
  /// sequences.
  UnalignedView<std::int64_t> document_indices() const { return document_indices_; }
  /// Returns one mode per sequence when multimodal, else an empty view.
  UnalignedView<std::int8_t> sequence_modes() const { return modes_; }
  std::uint64_t bin_size() const { return bin_size_; }
  /// Returns the .idx file, or the local copy of a remote one.
  const fs::path& index_path() const { return index_.path(); }
  /// Copies raw bytes of the .bin file.
  void read_bytes(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  void parse_index(bool multimodal);
  void open_bin(const IndexedDatasetOptions& options);
  [[noreturn]] void throw_damaged_index(const std::string& what, const std::string& got = "") const;
  std::int64_t end_of(std::int64_t sequence) const;
  void check_ends() const;
  void check_sequence(std::int64_t sequence) const;
  void check_sequences() const;
  void check_overlaps() const;
  void check_coverage(std::int64_t covered) const;
  void check_document_ends() const;
  void check_documents() const;

  std::string prefix_;
  MappedFile index_, bin_;
  std::unique_ptr<RangeReader> bin_reader_;  ///< null when the file is mapped
  bool partial_ = false;
  mutable Once check_once_;
  std::uint64_t bin_size_ = 0;
  TokenDtype type_ = TokenDtype::int32;
  UnalignedView<std::int32_t> lengths_;
  UnalignedView<std::int64_t> pointers_, document_indices_;
  UnalignedView<std::int8_t> modes_;
};

}  // namespace megatron
