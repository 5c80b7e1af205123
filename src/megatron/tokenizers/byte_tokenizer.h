// A tokenizer with one token per byte. It needs no files and reproduces any content exactly.
#pragma once

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Ids 0 to 255 are the bytes; 256 is eod.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override;
  /// Returns the bytes, which may be invalid UTF-8.
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return 257; }
  std::int32_t eod() const override { return 256; }
  std::string token(std::int32_t id) const override;
  bool accepts_invalid_utf8() const override { return true; }
  std::string_view name() const override { return "ByteTokenizer"; }
};

}  // namespace megatron
