#include "megatron/datasets/punkt_words.h"

#include <algorithm>

#include "megatron/tokenizers/chat/python_text.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::punkt {
namespace {

using chat::TextClass;

std::size_t character_size(std::string_view text, std::size_t at) {
  std::size_t end = at;
  next_code_point(text, end);
  return end - at;
}

/// Returns whether the character is a letter or an underscore, as Python's [^\W\d].
bool is_letter(std::string_view character) {
  return character == "_" || (chat::is_class(character, TextClass::alnum) &&
                              !chat::is_class(character, TextClass::decimal));
}

std::size_t run_of(std::string_view text, std::size_t at, char c) {
  const std::size_t end = text.find_first_not_of(c, at);
  return std::min(end, text.size()) - at;
}

/// Returns the size of dashes, an ellipsis or periods with spaces between them; 0 without.
std::size_t multiple_punctuation_size(std::string_view text, std::size_t at) {
  if (at >= text.size() || (text[at] != '-' && text[at] != '.')) return 0;
  const std::size_t run = run_of(text, at, text[at]);
  if (run >= 2) return run;
  if (text[at] == '-') return 0;
  // At least two pairs of a period and a space, then a period.
  std::size_t end = at, last_pair = at, pairs = 0;
  while (end < text.size() && text[end] == '.') {
    const std::size_t space = space_size(text, end + 1);
    if (space == 0) break;
    last_pair = end;
    end += 1 + space;
    ++pairs;
  }
  const bool period_follows = end < text.size() && text[end] == '.';
  if (period_follows && pairs >= 2) return end + 1 - at;
  return !period_follows && pairs >= 3 ? last_pair + 1 - at : 0;
}

/// Returns whether a word that reaches to `at` ends there, if no comma follows.
bool is_end(std::string_view text, std::size_t at) {
  return at >= text.size() || space_size(text, at) > 0 || non_word_size(text, at) > 0 ||
         multiple_punctuation_size(text, at) > 0;
}

/// Returns the size of the word or the punctuation at `at`, where there is no white space.
std::size_t word_size(std::string_view text, std::size_t at) {
  if (const std::size_t size = multiple_punctuation_size(text, at)) return size;
  std::size_t end = at + character_size(text, at);
  constexpr std::string_view kNoWordStart = "(\"`{[:;&#*@)}]-,";
  if (kNoWordStart.find(text[at]) != std::string_view::npos) return end - at;
  while (!is_end(text, end) && !(text[end] == ',' && is_end(text, end + 1)))
    end += character_size(text, end);
  return end - at;
}

/// Returns whether the text is a number with signs, points and commas.
bool is_numeric(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) ++at;
  const auto is_digit = [&] {
    return chat::is_class(text.substr(at, character_size(text, at)), TextClass::decimal);
  };
  if (at >= text.size() || !is_digit()) return false;
  for (; at < text.size(); at += character_size(text, at))
    if (text[at] != ',' && text[at] != '.' && text[at] != '-' && !is_digit()) return false;
  return true;
}

std::string type_of(std::string_view text) {
  std::string lower = chat::lower(text);
  return is_numeric(lower) ? std::string(kNumber) : lower;
}

}  // namespace

std::size_t space_size(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  std::size_t end = at;
  return chat::is_space(next_code_point(text, end)) ? end - at : 0;
}

std::size_t non_word_size(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  std::size_t end = at;
  const char32_t c = next_code_point(text, end);
  constexpr std::u32string_view kNonWord = U")\";}]*:@'({[‘’“”«»?!";
  return kNonWord.find(c) != std::u32string_view::npos ? end - at : 0;
}

std::string Word::type_without_period() const {
  return count_characters(type) > 1 && type.ends_with('.') ? type.substr(0, type.size() - 1) : type;
}

FirstCase Word::first_case() const {
  const std::string_view first = text.substr(0, character_size(text, 0));
  if (chat::is_class(first, TextClass::lower)) return FirstCase::lower;
  return chat::is_class(first, TextClass::upper) ? FirstCase::upper : FirstCase::none;
}

bool Word::is_initial() const {
  const std::size_t first = character_size(text, 0);
  return text.size() == first + 1 && text.back() == '.' && is_letter(text.substr(0, first));
}

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    for (std::size_t at = 0; at < line.size();) {
      if (const std::size_t space = space_size(line, at)) {
        at += space;
        continue;
      }
      const std::string_view word = line.substr(at, word_size(line, at));
      words.push_back({.text = word, .type = type_of(word)});
      at += word.size();
    }
  }
  return words;
}

void annotate(Word& word, const PunktParameters& parameters) {
  const std::string_view text = word.text;
  if (text == "." || text == "?" || text == "!") {
    word.ends_sentence = true;
  } else if (text.size() > 1 && run_of(text, 0, '.') == text.size()) {
    word.is_ellipsis = true;
  } else if (word.has_final_period() && !text.ends_with("..")) {
    const std::string lower = chat::lower(text.substr(0, text.size() - 1));
    const auto is_known = [&](const std::string& type) {
      return parameters.abbreviations.contains(type);
    };
    word.is_abbreviation = is_known(lower) || is_known(lower.substr(lower.rfind('-') + 1));
    word.ends_sentence = !word.is_abbreviation;
  }
}

}  // namespace megatron::punkt
