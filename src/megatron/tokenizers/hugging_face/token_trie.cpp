#include "megatron/tokenizers/hugging_face/token_trie.h"

namespace megatron::hugging_face {

bool TokenTrie::add(std::string_view text, std::int32_t id) {
  std::uint32_t at = 0;
  for (const char c : text) {
    const auto [edge, is_new] = nodes_[at].next.try_emplace(
        static_cast<unsigned char>(c), static_cast<std::uint32_t>(nodes_.size()));
    at = edge->second;
    if (is_new) nodes_.emplace_back();
  }
  if (nodes_[at].id >= 0) return false;
  nodes_[at].id = id;
  first_bytes_[static_cast<unsigned char>(text.front())] = true;
  return true;
}

TokenTrie::Prefix TokenTrie::match_at(std::string_view text) const {
  Prefix match{0, -1};
  if (text.empty() || !first_bytes_[static_cast<unsigned char>(text.front())]) return match;
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto edge = nodes_[at].next.find(static_cast<unsigned char>(text[i]));
    if (edge == nodes_[at].next.end()) break;
    at = edge->second;
    if (nodes_[at].id >= 0) match = {i + 1, nodes_[at].id};
  }
  return match;
}

TokenTrie::Match TokenTrie::find(std::string_view text, std::size_t start) const {
  for (; start < text.size(); ++start) {
    if (!first_bytes_[static_cast<unsigned char>(text[start])]) continue;
    const Prefix match = match_at(text.substr(start));
    if (match.id >= 0) return {{start, start + match.length}, match.id};
  }
  return {{text.size(), text.size()}, -1};
}

}  // namespace megatron::hugging_face
