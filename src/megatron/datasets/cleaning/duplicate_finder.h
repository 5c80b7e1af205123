// Finds documents that equal or resemble one that was kept before.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/cleaning/key_table.h"
#include "megatron/datasets/cleaning/minhash.h"
#include "megatron/datasets/continued_file.h"

namespace megatron {

struct DuplicateOptions {
  bool exact = false;                  ///< find equal texts
  std::optional<MinHashOptions> near;  ///< find texts that share a band
  /// Least estimated Jaccard similarity of two texts that share a band and count as duplicates;
  /// 0: all that share one do.
  double threshold = 0;
  bool compares_signatures() const { return near && threshold > 0; }
};

/// What is compared of a document. Computing it needs no other document.
struct DuplicateKeys {
  std::array<std::uint64_t, 2> text_hash{};
  std::vector<std::uint64_t> bands;      ///< empty for a text without words
  std::vector<std::uint32_t> signature;  ///< only with compares_signatures()
};

struct Duplicate {
  std::string_view rule;  ///< "exact_dedup" or "minhash_dedup"
  std::uint32_t
      original;  ///< number of the first document it equals or resembles, among those kept
};

/// Remembers the documents that were kept. Memory per kept document is 14 to 21 bytes for equal
/// texts (and 8 more), 14 to 21 bytes per band, and 4 bytes per permutation with a threshold; half
/// of a table more while it grows. Not thread-safe.
class DuplicateFinder {
 public:
  /// With a `journal`, keeps what add() was given in that file; `resumed` is the size to which an
  /// existing one is cut and read.
  DuplicateFinder(const DuplicateOptions& options, const std::string& journal,
                  std::uint64_t resumed = 0);
  ~DuplicateFinder();

  std::optional<Duplicate> find(const DuplicateKeys& keys) const;
  /// Remembers a document that is kept.
  void add(const DuplicateKeys& keys);
  /// Makes the journal durable and returns its size.
  std::uint64_t checkpoint();

 private:
  void remember(const DuplicateKeys& keys);
  void read_journal(const std::string& path, std::uint64_t size);
  std::optional<std::uint32_t> find_equal(const DuplicateKeys& keys) const;
  std::optional<std::uint32_t> find_similar(const DuplicateKeys& keys) const;
  bool is_similar(const DuplicateKeys& keys, std::uint32_t document) const;
  std::size_t record_words() const;

  DuplicateOptions options_;
  std::size_t num_bands_ = 0, num_minima_ = 0;
  std::uint32_t documents_ = 0;
  KeyTable texts_;
  std::deque<std::uint64_t> second_halves_;  ///< of the hashes of texts
  std::vector<KeyTable> bands_;
  std::deque<std::uint32_t> signatures_;
  std::unique_ptr<ContinuedFile> journal_;
};

}  // namespace megatron
