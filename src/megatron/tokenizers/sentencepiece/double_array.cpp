#include "megatron/tokenizers/sentencepiece/double_array.h"

#include <cstring>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::sentencepiece {
namespace {

/// Keys of a damaged map may end inside characters.
bool ends_character(std::string_view text, std::size_t at) {
  return at == text.size() || !is_continuation_byte(text[at]);
}

}  // namespace

CharacterMap::CharacterMap(std::string_view blob, const std::string& source) {
  if (blob.empty()) return;
  std::uint32_t size = 0;
  if (blob.size() > sizeof size) std::memcpy(&size, blob.data(), sizeof size);
  if (size == 0 || size % sizeof(std::uint32_t) != 0 || size >= blob.size() - sizeof size ||
      blob.back() != '\0')
    throw UserError({source + ": the precompiled character map is malformed",
                     std::to_string(blob.size()) + " bytes", "check that the file is whole"});
  std::vector<std::uint32_t> units(size / sizeof(std::uint32_t));
  std::memcpy(units.data(), blob.data() + sizeof size, size);
  trie_ = DoubleArray(std::move(units));
  normalized_ = blob.substr(sizeof size + size);
  if (replace_invalid_utf8(normalized_))
    throw UserError({source + ": the replacements of the precompiled character map are not UTF-8",
                     "", "check that the file is whole"});
}

std::string_view CharacterMap::replacement_at(std::size_t offset) const {
  const bool begins_character =
      offset < normalized_.size() && !is_continuation_byte(normalized_[offset]);
  return begins_character ? std::string_view(normalized_.data() + offset) : std::string_view();
}

CharacterMap::Match CharacterMap::longest(std::string_view text) const {
  Match match;
  trie_.for_each_prefix(text, [&](std::size_t length, std::size_t value) {
    if (ends_character(text, length)) match = {length, replacement_at(value)};
  });
  return match;
}

CharacterMap::Match CharacterMap::shortest(std::string_view text) const {
  Match match;
  trie_.for_each_prefix(text, [&](std::size_t length, std::size_t value) {
    if (match.length == 0 && ends_character(text, length)) match = {length, replacement_at(value)};
  });
  return match;
}

}  // namespace megatron::sentencepiece
