// BERT's vocab.txt. The input is the file; a text of many scripts is encoded.
#include "fuzz/check_tokenizer.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/tokenizers/bert_tokenizer.h"

namespace megatron::fuzz {

void parse_wordpiece(std::string_view input) {
  const BertTokenizer tokenizer(write_input("vocab.txt", input), input.size() % 2 == 0);
  check_tokenizer(tokenizer, kManyScripts);
  check_tokenizer(tokenizer, input.substr(input.size() - std::min<std::size_t>(input.size(), 99)));
}

}  // namespace megatron::fuzz
