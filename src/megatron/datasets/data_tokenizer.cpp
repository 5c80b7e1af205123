#include "megatron/datasets/data_tokenizer.h"

namespace megatron {

DataTokenizer data_tokenizer(const Tokenizer& tokenizer, const TokenizerConfig& config) {
  DataTokenizer result{.vocab_size = tokenizer.vocab_size(), .eod = tokenizer.eod(), .pad = tokenizer.pad()};
  if (!config.tokenizer_model.empty()) result.identity.path = config.tokenizer_model;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) result.identity.arguments.emplace_back(name, value);
  };
  if (config.tokenizer_type == "NullTokenizer" && config.vocab_size) add("vocab_size", std::to_string(*config.vocab_size));
  if (config.tokenizer_type == "ByteTokenizer") add("library", "byte-level");
  add("vocab_file", config.vocab_file);
  add("merges_file", config.merge_file);
  return result;
}

}  // namespace megatron
