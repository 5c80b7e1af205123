// The files of a dataset, or of one of its partitions, while it is written. Nothing that grows with
// the number of documents stays in memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "megatron/base/files.h"
#include "megatron/datasets/continued_file.h"
#include "megatron/datasets/indexed_dataset.h"

namespace megatron {

/// How much a part holds. It determines the sizes of the part's files.
struct PartState {
  std::int64_t sequences = 0, documents = 0, tokens = 0;
  bool operator==(const PartState&) const = default;
};

class DatasetPart {
 public:
  /// Creates the files `prefix`.partial.`number`.{bin,lengths,documents,modes}, or with `resumed`
  /// cuts existing ones to what they held then and continues. Throws a UserError if they hold less.
  DatasetPart(const std::string& prefix, std::size_t number, TokenDtype type, bool multimodal,
              const PartState& resumed = {});
  DatasetPart(DatasetPart&&) noexcept;
  /// Returns whether the files of a part hold at least what they held in that state.
  static bool can_resume(const std::string& prefix, std::size_t number, TokenDtype type,
                         bool multimodal, const PartState& state);
  ~DatasetPart();

  /// Appends one document. `modes` has one entry per sequence if multimodal.
  void add_document(std::span<const std::int32_t> tokens, std::span<const std::int32_t> lengths,
                    std::span<const std::int8_t> modes);
  /// Appends one sequence, as the bytes of its tokens, to the document that end_document() ends.
  void add_sequence(std::span<const std::byte> bytes, std::int32_t length, std::int8_t mode);
  void end_document();
  /// Appends all documents of a part whose files are closed.
  void add_part(const DatasetPart& part);

  /// Makes everything that was added durable.
  void checkpoint();
  /// Closes the files. Only write_index(), add_part() and remove() may follow.
  void close();
  /// Writes the .idx file of the closed part to index_path().
  void write_index() const;
  void remove() const;

  const PartState& state() const { return state_; }
  std::string bin_path() const { return path(kBin); }
  std::string index_path() const { return stem_ + ".idx"; }

 private:
  enum File { kBin, kLengths, kDocuments, kModes, kNumFiles };
  static std::string stem(const std::string& prefix, std::size_t number);
  static std::string path(const std::string& stem, File file);
  static std::uint64_t size(const PartState& state, TokenDtype type, File file);
  std::string path(File file) const { return path(stem_, file); }
  std::uint64_t size(File file) const { return size(state_, type_, file); }
  void write_tokens(std::span<const std::int32_t> tokens);
  FileWriter& writer(File file);
  template <class Write>
  void read_values(File file, const Write& write) const;

  std::string prefix_, stem_;
  TokenDtype type_;
  bool multimodal_;
  PartState state_;
  std::array<std::optional<ContinuedFile>, kNumFiles> files_;
};

}  // namespace megatron
