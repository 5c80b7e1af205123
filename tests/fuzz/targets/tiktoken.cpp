// Vocabularies for tiktoken, tekken.json and Megatron's list. The input is --tiktoken-pattern, a
// NUL byte and the file.
#include "fuzz/check_tokenizer.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/tiktoken/tiktoken_tokenizer.h"

namespace megatron::fuzz {

void parse_tiktoken(std::string_view input) {
  TokenizerConfig config;
  config.tiktoken_pattern = take_part(input);
  config.tokenizer_model = write_input("tekken.json", input);
  config.tiktoken_num_special_tokens = 10;
  const TiktokenTokenizer tokenizer(config);
  check_tokenizer(tokenizer, kManyScripts);
}

}  // namespace megatron::fuzz
