// GPT-2's two files. The input holds vocab.json, a NUL byte and merges.txt.
#include "fuzz/check_tokenizer.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron::fuzz {

void parse_gpt2_files(std::string_view input) {
  TokenizerConfig config;
  config.tokenizer_type = "GPT2BPETokenizer";
  config.vocab_file = write_input("vocab.json", take_part(input));
  config.merge_file = write_input("merges.txt", input);
  check_tokenizer(*make_tokenizer(config), kManyScripts);
}

}  // namespace megatron::fuzz
