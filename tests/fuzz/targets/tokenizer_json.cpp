// tokenizer.json. The input is the file; a text of many scripts is encoded, and so is its end.
#include "fuzz/check_tokenizer.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"

namespace megatron::fuzz {

void parse_tokenizer_json(std::string_view input) {
  const HuggingFaceTokenizer tokenizer(write_input("tokenizer.json", input));
  check_tokenizer(tokenizer, kManyScripts);
  check_tokenizer(tokenizer, input.substr(input.size() - std::min<std::size_t>(input.size(), 99)));
}

}  // namespace megatron::fuzz
