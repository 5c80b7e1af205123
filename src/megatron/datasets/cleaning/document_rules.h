// The rules by which documents are removed for what they contain: their table, and which of them a
// text breaks first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/cleaning/text_measures.h"

namespace megatron {

/// A set of Unicode scripts. Immutable; threads may share it.
class ScriptSet {
 public:
  /// Takes names of Unicode scripts, as "Latin" or "Cyrillic". Throws a UserError for others.
  explicit ScriptSet(const std::vector<std::string>& names);
  /// Returns the share of letters that are of these scripts; 1 for a text without letters.
  double letter_ratio(std::string_view text) const;

 private:
  std::vector<bool> contains_;  ///< by code point
};

/// Bounds of the rules; those without a value are not applied.
struct DocumentRules {
  using Bound = std::optional<double>;
  Bound min_doc_bytes, max_doc_bytes, min_doc_chars, max_doc_chars, min_doc_words, max_doc_words;
  Bound min_avg_word_length, max_avg_word_length, max_symbol_word_ratio, max_bullet_lines_ratio,
      max_ellipsis_lines_ratio, min_alpha_words_ratio, min_stop_words, max_digit_ratio,
      max_symbol_ratio;
  Bound max_dup_para_frac, max_dup_para_char_frac, max_dup_line_frac, max_dup_line_char_frac;
  Bound max_top_2_gram_frac, max_top_3_gram_frac, max_top_4_gram_frac;
  Bound max_dup_5_gram_frac, max_dup_6_gram_frac, max_dup_7_gram_frac, max_dup_8_gram_frac,
      max_dup_9_gram_frac, max_dup_10_gram_frac;
  std::vector<std::string>
      forbidden_text;                ///< compared without regard to the case of ASCII letters
  std::vector<std::string> scripts;  ///< names of Unicode scripts, as Latin
  double min_script_ratio = 0.8;     ///< share of the letters that are of `scripts`
};

/// One rule with a bound.
struct DocumentRule {
  const char* name;  ///< of the setting, as min_doc_words
  DocumentRules::Bound DocumentRules::*bound;
  double (*measure)(const TextMeasures&);
  bool is_minimum;               ///< values below the bound break the rule; else those above it
  bool is_ratio;                 ///< values lie between 0 and 1
  std::optional<double> gopher;  ///< the bound of Gopher's rules, as in datatrove
  const char* help;
};

/// Returns all rules with a bound, in the order in which they are applied.
std::span<const DocumentRule> document_rules();

/// Returns whether there is a rule to apply.
bool has_rules(const DocumentRules& rules);

/// Sets the bounds of Gopher's rules that have no value.
void add_gopher_rules(DocumentRules& rules);

/// Applies rules to texts. Immutable; threads may share it.
class DocumentFilter {
 public:
  /// Throws a UserError for an unknown script.
  explicit DocumentFilter(DocumentRules rules);
  /// Returns the name of the first rule that a text of valid UTF-8 breaks; "" if there is none.
  std::string_view broken_rule(std::string_view text) const;

 private:
  DocumentRules rules_;
  std::optional<ScriptSet> scripts_;
  std::vector<const DocumentRule*> bounded_;
};

}  // namespace megatron
