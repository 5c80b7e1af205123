// SentencePiece models. The input is the file; a text of many scripts is encoded.
#include "fuzz/check_tokenizer.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/tokenizers/sentencepiece/sentencepiece_tokenizer.h"

namespace megatron::fuzz {

void parse_sentencepiece(std::string_view input) {
  const SentencePieceTokenizer tokenizer(write_input("tokenizer.model", input),
                                         "SentencePieceTokenizer");
  check_tokenizer(tokenizer, kManyScripts);
  check_tokenizer(tokenizer, input.substr(input.size() - std::min<std::size_t>(input.size(), 99)));
}

}  // namespace megatron::fuzz
