#include "megatron/grammar/token_trie.h"

#include <algorithm>
#include <utility>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

std::vector<std::string> texts_of(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (!tokenizer.is_special(id)) texts[i] = tokenizer.token_bytes(id);
  }
  return texts;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : TokenTrie(texts_of(tokenizer)) {}

TokenTrie::TokenTrie(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i].empty()) continue;
    sorted_tokens_.push_back(static_cast<std::int32_t>(i));
    if (texts_[i].size() == 1) single_bytes_.set(static_cast<unsigned char>(texts_[i].front()));
  }
  std::ranges::sort(sorted_tokens_, {}, [this](std::int32_t id) { return text(id); });
  nodes_.push_back({});
  std::vector<std::size_t> path = {0};  // nodes from the root to the last one
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].end = static_cast<std::int32_t>(nodes_.size());
  };
  std::string_view before;
  for (std::size_t i = 0; i < sorted_tokens_.size(); ++i) {
    const std::string_view own = text(sorted_tokens_[i]);
    const auto shared =
        static_cast<std::size_t>(std::ranges::mismatch(own, before).in1 - own.begin());
    close(shared + 1);
    for (std::size_t k = shared; k < own.size(); ++k) {
      path.push_back(nodes_.size());
      nodes_.push_back({.byte = static_cast<std::uint8_t>(own[k]),
                        .depth = static_cast<std::int32_t>(k + 1),
                        .end = 0,
                        .first_token = static_cast<std::int32_t>(i)});
    }
    before = own;
  }
  close(0);
  nodes_.push_back({.byte = 0,
                    .depth = 0,
                    .end = 0,
                    .first_token = static_cast<std::int32_t>(sorted_tokens_.size())});
}

}  // namespace megatron
