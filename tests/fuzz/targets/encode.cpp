// Texts. The first byte of the input chooses a tokenizer among the fixtures, the rest is encoded
// and decoded by it.
#include <memory>
#include <vector>

#include "fuzz/check_tokenizer.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {
namespace {

std::vector<std::unique_ptr<Tokenizer>> open_all() {
  const std::string folder = MEGATRON_SOURCE_DIR "/tests/tokenizers/fixtures/";
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name :
       {"bert.json", "flavours.json", "gpt2", "gpt2.json", "llama2.json", "llama3.json",
        "metaspace.json", "qwen2.json", "sp_bpe_bytes.model", "sp_bpe_symbols.model",
        "sp_bpe_unused.model", "sp_unigram_bytes.model", "sp_unigram_symbols.model", "strips.json",
        "t5.json", "word_level.json"}) {
    TokenizerConfig config;
    config.tokenizer_model = folder + name;
    tokenizers.push_back(make_tokenizer(config));
  }
  for (const char* pattern : {"cl100k_base", "o200k_base", "tekken", "qwen"}) {
    TokenizerConfig config;
    config.tokenizer_model = folder + "small.tiktoken";
    config.tiktoken_pattern = pattern;
    tokenizers.push_back(make_tokenizer(config));
  }
  return tokenizers;
}

}  // namespace

void parse_encode(std::string_view input) {
  static const std::vector<std::unique_ptr<Tokenizer>> tokenizers = open_all();
  if (input.empty()) return;
  const auto choice = static_cast<unsigned char>(input.front());
  check_tokenizer(*tokenizers[choice % tokenizers.size()], input.substr(1));
}

}  // namespace megatron::fuzz
