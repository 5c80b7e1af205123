// Finds given strings in text, leftmost and longest first, without overlaps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

/// A byte trie; immutable once filled.
class TokenTrie {
 public:
  struct Match {
    Span span;
    std::int32_t id;
  };

  /// Adds a non-empty string; false when it is there already.
  bool add(std::string_view text, std::int32_t id);
  bool empty() const { return nodes_.size() == 1; }
  /// The first match at or after `start`, id −1 when there is none.
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
