// A tokenizer whose tokens are given bytes, which may be parts of characters.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

class BytePieces : public Tokenizer {
 public:
  explicit BytePieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens) const override {
    std::string text;
    for (const std::int32_t id : ids) text += token(id);
    return replace_invalid_utf8(text).value_or(text);
  }
  std::int64_t vocab_size() const override { return std::ssize(pieces_); }
  std::int32_t eod() const override { return -1; }
  std::string token(std::int32_t id) const override {
    return pieces_.at(static_cast<std::size_t>(id));
  }
  std::string_view name() const override { return "BytePieces"; }

 private:
  std::vector<std::string> pieces_;
};

}  // namespace megatron
