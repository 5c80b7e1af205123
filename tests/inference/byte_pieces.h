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
  /// The piece of the id `special` is a special token; −1: there is none.
  explicit BytePieces(std::vector<std::string> pieces, std::int32_t special = -1)
      : pieces_(std::move(pieces)), special_(special) {}
  std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override {
    std::string text;
    for (const std::int32_t id : ids)
      if (special == SpecialTokens::keep || !is_special(id)) text += token(id);
    return replace_invalid_utf8(text).value_or(text);
  }
  std::int64_t vocab_size() const override { return std::ssize(pieces_); }
  std::int32_t eod() const override { return -1; }
  bool is_special(std::int32_t id) const override { return special_ >= 0 && id == special_; }
  std::string token(std::int32_t id) const override {
    return pieces_.at(static_cast<std::size_t>(id));
  }
  std::string_view name() const override { return "BytePieces"; }

 private:
  std::vector<std::string> pieces_;
  std::int32_t special_;
};

}  // namespace megatron
