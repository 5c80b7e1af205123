// Finds given strings in a text: leftmost first, then longest, without overlaps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

/// A trie over bytes. Immutable once it is filled.
class TokenTrie {
 public:
  struct Match {
    Span span;
    std::int32_t id;
  };

  /// Adds a non-empty string. Returns false when it exists already.
  bool add(std::string_view text, std::int32_t id);
  /// Returns whether a string begins with this byte.
  bool has_first(char byte) const { return first_bytes_[static_cast<unsigned char>(byte)]; }
  bool empty() const { return nodes_.size() == 1; }
  struct Prefix {
    std::size_t length;  ///< 0 when there is none
    std::int32_t id;
  };
  /// Returns the longest string that `text` begins with.
  Prefix match_at(std::string_view text) const;
  /// Returns the first match at or after `start`; its id is −1 when there is none.
  Match find(std::string_view text, std::size_t start) const;

 private:
  struct Node {
    std::map<unsigned char, std::uint32_t> next;
    std::int32_t id = -1;
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> first_bytes_{};
};

}  // namespace megatron::hugging_face
