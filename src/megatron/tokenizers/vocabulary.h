// A map between token strings and ids. It stores strings in one arena with an open-addressing
// index.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/hash_bytes.h"

namespace megatron {

/// The largest id that a vocabulary file may use.
inline constexpr std::int64_t kMaxTokenId = (std::int64_t{1} << 24) - 1;

/// An immutable map between tokens and ids. Ids may have gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Reads a JSON object {token: id}. Throws a UserError for another JSON type, an empty object,
  /// and ids that are not integers, out of range or duplicate. `source` names file and field in
  /// errors.
  Vocabulary(const nlohmann::json& object, const std::string& source);

  /// Takes tokens with their ids, which are from 0 to kMaxTokenId. Returns nullopt when a token or
  /// an id is given twice, and for none.
  static std::optional<Vocabulary> of_pairs(
      std::span<const std::pair<std::string_view, std::int32_t>> tokens);
  /// Numbers `tokens` from 0. find() returns the last of equal tokens. Throws a UserError for too
  /// many tokens and for none.
  static Vocabulary numbered(std::span<const std::string_view> tokens, const std::string& source);

  /// Returns the id of `token`; −1 when absent.
  std::int32_t find(std::string_view token) const;
  /// Sets ids[i] to find(tokens[i]). It waits for memory once for several tokens, so that it takes
  /// half the time of as many calls in a large vocabulary.
  void find_all(std::span<const std::string_view> tokens, std::span<std::int32_t> ids) const;
  /// Returns the token of `id`; empty when there is none.
  std::string_view token(std::int32_t id) const;
  bool contains(std::int32_t id) const {
    return id >= 0 && id < id_limit() && token_of_id_[static_cast<std::size_t>(id)].size != kAbsent;
  }

  /// Returns the number of tokens.
  std::int32_t size() const { return size_; }
  /// Returns the largest id + 1.
  std::int32_t id_limit() const { return static_cast<std::int32_t>(token_of_id_.size()); }

 private:
  static constexpr std::uint32_t kAbsent = ~0u;
  struct TokenRange {
    std::uint32_t offset = 0;
    std::uint32_t size = kAbsent;
  };
  struct Slot {
    std::uint64_t bits = 0;  ///< of the TextKey
    std::uint32_t size = 0;
    std::int32_t id = -1;
  };
  /// Makes room for `count` tokens and calls add(token, key, id) for each token_at(i), which is a
  /// token with its id, until one returns false. Returns whether none did.
  template <class TokenAt, class Add>
  bool fill(std::size_t count, const TokenAt& token_at, const Add& add);
  /// Returns false when the token had an id, which `id` replaces.
  bool insert(std::string_view token, std::int32_t id) {
    return insert(token, TextKey::of(token), id);
  }
  bool insert(std::string_view token, const TextKey& key, std::int32_t id);
  std::int32_t find(std::string_view token, const TextKey& key) const;
  bool is_token(std::int32_t id, std::string_view token) const;
  bool holds(const Slot& slot, const TextKey& key, std::string_view token) const {
    return slot.bits == key.bits && slot.size == key.size &&
           (key.is_text() || is_token(slot.id, token));
  }
  std::size_t first_slot(const TextKey& key) const { return key.hash() & (slots_.size() - 1); }

  std::string arena_;
  HugePageVector<TokenRange> token_of_id_;
  HugePageVector<Slot> slots_;
  std::int32_t size_ = 0;
};

}  // namespace megatron
