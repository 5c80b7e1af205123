// Ids in any order. The first byte of the input chooses a tokenizer among the fixtures, every two
// bytes after it are an id.
#include "fuzz/fixture_tokenizers.h"
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/tokenizers/decode_stream.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::fuzz {

void parse_decode(std::string_view input) {
  static const std::vector<std::unique_ptr<Tokenizer>> tokenizers = open_fixture_tokenizers();
  if (input.empty()) return;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  const Tokenizer& tokenizer = *tokenizers[byte(0) % tokenizers.size()];
  std::vector<std::int32_t> ids;
  for (std::size_t i = 1; i + 1 < input.size(); i += 2)
    ids.push_back(static_cast<std::int32_t>((256 * byte(i) + byte(i + 1)) %
                                            static_cast<unsigned>(tokenizer.vocab_size())));
  for (const SpecialTokens special : {SpecialTokens::keep, SpecialTokens::skip}) {
    const std::string decoded = tokenizer.decode(ids, special);
    require(!replace_invalid_utf8(decoded), "the text is not UTF-8");
    DecodeStream stream(tokenizer, {}, special);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.add(id);
    streamed += stream.finish();
    require(streamed == decoded, "a stream decodes to another text");
  }
}

}  // namespace megatron::fuzz
