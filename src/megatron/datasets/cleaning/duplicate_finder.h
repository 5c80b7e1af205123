// Finds documents that equal or resemble one that was kept before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/cleaning/minhash.h"
#include "megatron/datasets/continued_file.h"

namespace megatron {

/// A hash table from keys that are hashes already to the numbers of documents. Holds 12 bytes per
/// slot, and 1.15 to 1.75 slots per key.
class KeyTable {
 public:
  /// Calls use(document) for the documents of a key, in the order in which they were added, until
  /// it returns true or there are no more.
  template <class Use>
  void find(std::uint64_t key, const Use& use) const {
    if (keys_.empty()) return;
    for (std::size_t slot = first_slot(key); documents_[slot] != kEmpty; slot = next(slot))
      if (keys_[slot] == key && use(documents_[slot])) return;
  }

  /// Adds a document, which must be below 2^32 − 1. A key may have several.
  void add(std::uint64_t key, std::uint32_t document) {
    if (8 * (size_ + 1) > 7 * keys_.size()) grow();
    put(key, document);
    ++size_;
  }

 private:
  static constexpr std::uint32_t kEmpty = 0xffffffffu;

  /// Maps the key to a slot by its high bits, so that the size need not be a power of two.
  std::size_t first_slot(std::uint64_t key) const {
    __extension__ using Uint128 = unsigned __int128;
    return static_cast<std::size_t>((Uint128{key} * keys_.size()) >> 64);
  }
  std::size_t next(std::size_t slot) const { return slot + 1 == keys_.size() ? 0 : slot + 1; }

  void put(std::uint64_t key, std::uint32_t document) {
    std::size_t slot = first_slot(key);
    while (documents_[slot] != kEmpty) slot = next(slot);
    keys_[slot] = key;
    documents_[slot] = document;
  }

  void grow() {
    const std::size_t size = keys_.size() < 64 ? 64 : keys_.size() + keys_.size() / 2;
    std::vector<std::uint64_t> keys(size);
    std::vector<std::uint32_t> documents(size, kEmpty);
    keys.swap(keys_);
    documents.swap(documents_);
    // From an empty slot on, so that the documents of a key keep their order.
    std::size_t start = 0;
    while (start < documents.size() && documents[start] != kEmpty) ++start;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const std::size_t slot = (start + i) % documents.size();
      if (documents[slot] != kEmpty) put(keys[slot], documents[slot]);
    }
  }

  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> documents_;
  std::size_t size_ = 0;
};

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
