// Texts. The first byte of the input chooses a tokenizer among the fixtures, the rest is encoded
// and decoded by it.
#include "fuzz/check_tokenizer.h"
#include "fuzz/fixture_tokenizers.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_encode(std::string_view input) {
  static const std::vector<std::unique_ptr<Tokenizer>> tokenizers = open_fixture_tokenizers();
  if (input.empty()) return;
  const auto choice = static_cast<unsigned char>(input.front());
  check_tokenizer(*tokenizers[choice % tokenizers.size()], input.substr(1));
}

}  // namespace megatron::fuzz
