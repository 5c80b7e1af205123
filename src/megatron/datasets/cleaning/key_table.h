// A hash table from keys that are hashes already to the numbers of documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatron {

/// Holds 12 bytes per slot, and 1.15 to 1.75 slots per key.
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

}  // namespace megatron
