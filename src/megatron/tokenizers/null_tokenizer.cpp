#include "megatron/tokenizers/null_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {

NullTokenizer::NullTokenizer(std::int64_t vocab_size, const Ids& ids) : vocab_size_(vocab_size) {
  if (vocab_size < 1 || vocab_size > std::numeric_limits<std::int32_t>::max())
    throw UserError({"--vocab-size of NullTokenizer must be from 1 to 2147483647",
                     std::to_string(vocab_size), ""});
  const auto checked = [&](const char* flag, std::int64_t id) {
    if (id < -1 || id >= vocab_size)
      throw UserError({std::string(flag) + " must be less than --vocab-size", std::to_string(id),
                       "--vocab-size " + std::to_string(vocab_size) + " has the ids 0 to " +
                           std::to_string(vocab_size - 1)});
    return static_cast<std::int32_t>(id);
  };
  eod_ = checked("--null-tokenizer-eod-id", ids.eod.value_or(vocab_size - 1));
  pad_ = checked("--null-tokenizer-pad-id", ids.pad);
}

std::vector<std::int32_t> NullTokenizer::encode(std::string_view text) const {
  constexpr std::string_view kSpaces = " \t\r\n\f\v";
  std::vector<std::int32_t> ids;
  for (std::size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;
       at = text.find_first_not_of(kSpaces, at)) {
    const std::size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    std::int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0 || id >= vocab_size_) {
      throw UserError(
          {"NullTokenizer reads ids from 0 to " + std::to_string(vocab_size_ - 1) +
               " separated by spaces",
           "\"" + std::string(text.substr(at, std::min<std::size_t>(end - at, 40))) + "\"",
           "use another --tokenizer-type for text, or a larger --vocab-size"});
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

std::string NullTokenizer::decode(std::span<const std::int32_t> ids, SpecialTokens) const {
  return joined_text(ids, " ");
}

}  // namespace megatron
