// What must hold of a tokenizer for any text.
#pragma once

#include <string_view>
#include <vector>

#include "fuzz/target.h"
#include "megatron/tokenizers/decode_stream.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron::fuzz {

/// Words, spaces, digits, scripts with marks, emoji, names of special tokens and invalid bytes.
inline constexpr std::string_view kManyScripts =
    "Hello,  world's 12345 \n\n\t<s>[CLS] <|endoftext|>e\u0301\u00e9\u0130\u0958\ufb01 "
    "\u4e2d\u6587\u3002\uac01\U0001f468\u200d\U0001f469\u2581\xff\xc3\xed\xa0\x80 end ";

/// Requires that the ids of `text` are those of the vocabulary and that a stream decodes them to
/// the same text.
inline void check_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for (const std::int32_t id : ids)
    require(id >= 0 && id < tokenizer.vocab_size(), "an id is not in the vocabulary");
  const std::string decoded = tokenizer.decode(ids, SpecialTokens::keep);
  DecodeStream stream(tokenizer, {}, SpecialTokens::keep);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.add(id);
  streamed += stream.finish();
  require(streamed == decoded, "a stream decodes to another text");
}

}  // namespace megatron::fuzz
