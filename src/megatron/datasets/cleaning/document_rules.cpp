#include "megatron/datasets/cleaning/document_rules.h"

#include <algorithm>
#include <array>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr char32_t kCodePoints = 0x110000;

/// Returns all characters in order, as UTF-8.
std::string all_characters() {
  std::string all;
  for (char32_t c = 0; c < kCodePoints; ++c)
    if (c < 0xd800 || c > 0xdfff) append_utf8(all, c);
  return all;
}

}  // namespace

ScriptSet::ScriptSet(const std::vector<std::string>& names) : contains_(kCodePoints, false) {
  std::string pattern;
  for (const std::string& name : names) {
    const auto is_name = [](char c) {
      return c == '_' || std::isalpha(static_cast<unsigned char>(c));
    };
    if (name.empty() || !std::ranges::all_of(name, is_name))
      throw UserError({"--scripts: no script is called " + name, "",
                       "give names of Unicode scripts, as Latin, Cyrillic or Han"});
    pattern += "\\p{" + name + "}";
  }
  try {
    const Regex regex("[" + pattern + "]+", "--scripts");
    Regex::Finder finder(regex);
    const std::string all = all_characters();
    std::string storage;
    std::vector<Span> matches;
    finder.find_all(replace_unassigned_characters(all, storage), 0, matches);
    for (const Span& match : matches)
      for (std::size_t at = match.begin; at < match.end;)
        contains_[next_code_point(all, at)] = true;
  } catch (const UserError& error) {
    throw UserError({"--scripts " + names.front() + (names.size() > 1 ? " ..." : "") +
                         ": a script is not known",
                     error.parts().what,
                     "give names of Unicode scripts, as Latin, Cyrillic or Han"});
  }
}

double ScriptSet::letter_ratio(std::string_view text) const {
  std::size_t letters = 0, own = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_letter(c)) continue;
    ++letters;
    own += contains_[c];
  }
  return letters == 0 ? 1.0 : static_cast<double>(own) / static_cast<double>(letters);
}

namespace {

template <std::size_t kSize>
double top_ngram(const TextMeasures& text) {
  return text.top_ngram_ratio(kSize);
}
template <std::size_t kSize>
double duplicate_ngram(const TextMeasures& text) {
  return text.duplicate_ngram_ratio(kSize);
}
template <double (TextMeasures::*kMember)() const>
double measure(const TextMeasures& text) {
  return (text.*kMember)();
}

using R = DocumentRules;
using M = TextMeasures;
constexpr bool kMinimum = true, kMaximum = false, kRatio = true, kNumber = false;
constexpr std::nullopt_t kNone = std::nullopt;

/// Cheap rules come first. Within Gopher's, the order is datatrove's.
const std::array kRules = {
    DocumentRule{"min_doc_bytes", &R::min_doc_bytes, measure<&M::bytes>, kMinimum, kNumber, kNone,
                 "remove documents of fewer bytes"},
    DocumentRule{"max_doc_bytes", &R::max_doc_bytes, measure<&M::bytes>, kMaximum, kNumber, kNone,
                 "remove documents of more bytes"},
    DocumentRule{"min_doc_chars", &R::min_doc_chars, measure<&M::characters>, kMinimum, kNumber,
                 kNone, "remove documents of fewer characters"},
    DocumentRule{"max_doc_chars", &R::max_doc_chars, measure<&M::characters>, kMaximum, kNumber,
                 kNone, "remove documents of more characters"},
    DocumentRule{"min_doc_words", &R::min_doc_words, measure<&M::words>, kMinimum, kNumber, 50.0,
                 "remove documents of fewer words, which white space separates; those of "
                 "punctuation alone do not count"},
    DocumentRule{"max_doc_words", &R::max_doc_words, measure<&M::words>, kMaximum, kNumber,
                 100000.0, "remove documents of more words"},
    DocumentRule{"min_avg_word_length", &R::min_avg_word_length, measure<&M::mean_word_length>,
                 kMinimum, kNumber, 3.0, "least mean length of words in characters"},
    DocumentRule{"max_avg_word_length", &R::max_avg_word_length, measure<&M::mean_word_length>,
                 kMaximum, kNumber, 10.0, "largest mean length of words in characters"},
    DocumentRule{"max_symbol_word_ratio", &R::max_symbol_word_ratio, measure<&M::symbol_word_ratio>,
                 kMaximum, kNumber, 0.1, "most '#', and most ellipses, per word"},
    DocumentRule{"max_bullet_lines_ratio", &R::max_bullet_lines_ratio,
                 measure<&M::bullet_line_ratio>, kMaximum, kRatio, 0.9,
                 "largest share of lines that begin with a bullet or '-'"},
    DocumentRule{"max_ellipsis_lines_ratio", &R::max_ellipsis_lines_ratio,
                 measure<&M::ellipsis_line_ratio>, kMaximum, kRatio, 0.3,
                 "largest share of lines that end with an ellipsis"},
    DocumentRule{"min_alpha_words_ratio", &R::min_alpha_words_ratio, measure<&M::alpha_word_ratio>,
                 kMinimum, kRatio, 0.8, "least share of words with a letter"},
    DocumentRule{"min_stop_words", &R::min_stop_words, measure<&M::stop_words>, kMinimum, kNumber,
                 2.0,
                 "how many of the words the, be, to, of, and, that, have, with must occur (English "
                 "only)"},
    DocumentRule{"max_digit_ratio", &R::max_digit_ratio, measure<&M::digit_ratio>, kMaximum, kRatio,
                 kNone, "largest share of characters that are numbers"},
    DocumentRule{"max_symbol_ratio", &R::max_symbol_ratio, measure<&M::symbol_ratio>, kMaximum,
                 kRatio, kNone,
                 "largest share of characters that are no letter, number or white space"},
    DocumentRule{"max_dup_para_frac", &R::max_dup_para_frac, measure<&M::duplicate_paragraph_ratio>,
                 kMaximum, kRatio, 0.3, "largest share of paragraphs that occurred before"},
    DocumentRule{"max_dup_para_char_frac", &R::max_dup_para_char_frac,
                 measure<&M::duplicate_paragraph_character_ratio>, kMaximum, kRatio, 0.2,
                 "largest share of the characters in such paragraphs"},
    DocumentRule{"max_dup_line_frac", &R::max_dup_line_frac, measure<&M::duplicate_line_ratio>,
                 kMaximum, kRatio, 0.3, "largest share of lines that occurred before"},
    DocumentRule{"max_dup_line_char_frac", &R::max_dup_line_char_frac,
                 measure<&M::duplicate_line_character_ratio>, kMaximum, kRatio, 0.2,
                 "largest share of the characters in such lines"},
    DocumentRule{"max_top_2_gram_frac", &R::max_top_2_gram_frac, top_ngram<2>, kMaximum, kRatio,
                 0.2, "largest share of the characters in the most frequent pair of words"},
    DocumentRule{"max_top_3_gram_frac", &R::max_top_3_gram_frac, top_ngram<3>, kMaximum, kRatio,
                 0.18, "the same for three words"},
    DocumentRule{"max_top_4_gram_frac", &R::max_top_4_gram_frac, top_ngram<4>, kMaximum, kRatio,
                 0.16, "the same for four words"},
    DocumentRule{"max_dup_5_gram_frac", &R::max_dup_5_gram_frac, duplicate_ngram<5>, kMaximum,
                 kRatio, 0.15,
                 "largest share of the characters in sequences of five words that occurred before"},
    DocumentRule{"max_dup_6_gram_frac", &R::max_dup_6_gram_frac, duplicate_ngram<6>, kMaximum,
                 kRatio, 0.14, "the same for six words"},
    DocumentRule{"max_dup_7_gram_frac", &R::max_dup_7_gram_frac, duplicate_ngram<7>, kMaximum,
                 kRatio, 0.13, "the same for seven words"},
    DocumentRule{"max_dup_8_gram_frac", &R::max_dup_8_gram_frac, duplicate_ngram<8>, kMaximum,
                 kRatio, 0.12, "the same for eight words"},
    DocumentRule{"max_dup_9_gram_frac", &R::max_dup_9_gram_frac, duplicate_ngram<9>, kMaximum,
                 kRatio, 0.11, "the same for nine words"},
    DocumentRule{"max_dup_10_gram_frac", &R::max_dup_10_gram_frac, duplicate_ngram<10>, kMaximum,
                 kRatio, 0.10, "the same for ten words"},
};

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  if (std::ranges::any_of(part, [](char c) { return static_cast<signed char>(c) < 0; }))
    return lowercase_unicode(text).find(lowercase_unicode(part)) != std::string::npos;
  return lower_case(text).find(lower_case(part)) != std::string::npos;
}

}  // namespace

std::span<const DocumentRule> document_rules() { return kRules; }

bool has_rules(const DocumentRules& rules) {
  const auto has_bound = [&](const DocumentRule& rule) { return (rules.*rule.bound).has_value(); };
  return !rules.scripts.empty() || !rules.forbidden_text.empty() ||
         std::ranges::any_of(kRules, has_bound);
}

void add_gopher_rules(DocumentRules& rules) {
  for (const DocumentRule& rule : kRules)
    if (!(rules.*rule.bound)) rules.*rule.bound = rule.gopher;
}

DocumentFilter::DocumentFilter(DocumentRules rules) : rules_(std::move(rules)) {
  for (const DocumentRule& rule : kRules)
    if (rules_.*rule.bound) bounded_.push_back(&rule);
  if (!rules_.scripts.empty()) scripts_.emplace(rules_.scripts);
  if (std::ranges::count(rules_.forbidden_text, "") > 0)
    throw UserError({"--forbidden-text ''", "is in every text", "give a text, or leave it out"});
}

std::string_view DocumentFilter::broken_rule(std::string_view text) const {
  if (!bounded_.empty()) {
    const TextMeasures measures(text);
    for (const DocumentRule* rule : bounded_) {
      const double value = rule->measure(measures), bound = *(rules_.*rule->bound);
      if (rule->is_minimum ? value < bound : value > bound) return rule->name;
    }
  }
  for (const std::string& part : rules_.forbidden_text)
    if (contains_ignoring_case(text, part)) return "forbidden_text";
  if (scripts_ && scripts_->letter_ratio(text) < rules_.min_script_ratio) return "scripts";
  return "";
}

}  // namespace megatron
