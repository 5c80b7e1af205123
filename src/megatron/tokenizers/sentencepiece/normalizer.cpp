#include "megatron/tokenizers/sentencepiece/normalizer.h"

#include "megatron/tokenizers/utf8.h"

namespace megatron::sentencepiece {

Normalizer::Normalizer(const NormalizerSpec& spec, bool space_is_suffix, const std::string& source)
    : map_(spec.precompiled_charsmap, source),
      add_dummy_prefix_(spec.add_dummy_prefix),
      remove_extra_(spec.remove_extra_whitespaces),
      escape_(spec.escape_whitespaces),
      space_is_suffix_(space_is_suffix) {
  find_plain_characters();
}

void Normalizer::keep_symbols(const hugging_face::TokenTrie* symbols) {
  symbols_ = symbols;
  find_plain_characters();
}

void Normalizer::find_plain_characters() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto c = static_cast<char>(byte);
    const bool is_rewritten = c == ' ' || (symbols_ != nullptr && symbols_->has_first(c)) ||
                              map_.is_key_prefix(std::string(1, c));
    plain_runs_[byte] = is_continuation_byte(c) || !is_rewritten;
  }
  for (char first = 0; first >= 0 && first < 127; ++first) {
    const std::string text(1, first);
    bool is_plain = symbols_ == nullptr || !symbols_->has_first(first);
    if (is_plain && map_.is_key_prefix(text)) {
      const CharacterMap::Match match = map_.longest(text);
      is_plain = match.length == 0 || match.replacement == text;
      for (char second = 0; is_plain && second >= 0 && second < 127; ++second)
        is_plain = !map_.is_key_prefix(text + second);
    }
    plain_[static_cast<std::size_t>(static_cast<unsigned char>(first))] = is_plain;
  }
}

Normalizer::Prefix Normalizer::next(std::string_view text) const {
  if (symbols_ != nullptr && !symbols_->empty()) {
    if (const std::size_t length = symbols_->match_at(text).length; length != 0)
      return {text.substr(0, length), length};
  }
  if (!map_.empty()) {
    const CharacterMap::Match match = map_.longest(text);
    if (match.length != 0) return {match.replacement, match.length};
  }
  std::size_t length = 0;
  next_code_point(text, length);
  return {text.substr(0, length), length};
}

void Normalizer::append(std::string& out, std::string_view normalized) const {
  if (!escape_) {
    out.append(normalized);
    return;
  }
  for (const char c : normalized) {
    if (c == ' ') {
      out.append(kSpaceSymbol);
    } else {
      out += c;
    }
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out;
  while (remove_extra_ && !text.empty()) {
    const Prefix prefix = next(text);
    if (prefix.normalized != " ") break;
    text.remove_prefix(prefix.length);
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + kSpaceSymbol.size());
  if (!space_is_suffix_ && add_dummy_prefix_) out += space();
  bool after_space = remove_extra_;
  while (!text.empty()) {
    std::size_t run = 0;
    while (run < text.size() && in_plain_run(text[run])) ++run;
    if (run > 0) {
      out.append(text.substr(0, run));
      after_space = false;
      text.remove_prefix(run);
      continue;
    }
    if (is_plain(text)) {
      const bool is_space = text.front() == ' ';
      if (!is_space) {
        out += text.front();
      } else if (!after_space) {
        out += space();
      }
      after_space = is_space && remove_extra_;
      text.remove_prefix(1);
      continue;
    }
    auto [normalized, length] = next(text);
    while (after_space && normalized.starts_with(' ')) normalized.remove_prefix(1);
    if (!normalized.empty()) {
      append(out, normalized);
      after_space = normalized.ends_with(' ');
    }
    text.remove_prefix(length);
    if (!remove_extra_) after_space = false;
  }
  while (remove_extra_ && out.ends_with(space())) out.erase(out.size() - space().size());
  if (space_is_suffix_ && add_dummy_prefix_) out += space();
  return out;
}

}  // namespace megatron::sentencepiece
