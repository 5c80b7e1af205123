// The tokens of a vocabulary as a trie of their bytes, in one array in preorder, so that a walk
// goes forward through memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/grammar/automaton.h"

namespace megatron {

class Tokenizer;

class TokenTrie {
 public:
  /// Takes the texts of tokens by id; "": the token has none.
  explicit TokenTrie(std::vector<std::string> texts);
  /// Takes those of a tokenizer, without its special tokens.
  explicit TokenTrie(const Tokenizer& tokenizer);

  struct Node {
    std::uint8_t byte;
    std::int32_t depth;        ///< number of bytes from the root, which is the first node
    std::int32_t end;          ///< of the subtree
    std::int32_t first_token;  ///< in sorted_tokens(); those of the node end where the next begin
  };
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  /// Returns the ids of the tokens that end at a node.
  std::span<const std::int32_t> tokens(std::size_t node) const {
    const auto begin = static_cast<std::size_t>(nodes_[node].first_token),
               end = static_cast<std::size_t>(nodes_[node + 1].first_token);
    return std::span(sorted_tokens_).subspan(begin, end - begin);
  }
  /// Returns the bytes of a token; "" if it has no text or does not exist.
  std::string_view text(std::int64_t id) const {
    return id >= 0 && id < std::ssize(texts_) ? texts_[static_cast<std::size_t>(id)]
                                              : std::string_view();
  }
  std::size_t vocab_size() const { return texts_.size(); }
  /// Returns the bytes that are tokens by themselves.
  const Automaton::Bytes& single_bytes() const { return single_bytes_; }

 private:
  std::vector<std::string> texts_;
  std::vector<Node> nodes_;  ///< and one behind the last, for tokens()
  std::vector<std::int32_t> sorted_tokens_;
  Automaton::Bytes single_bytes_;
};

}  // namespace megatron
