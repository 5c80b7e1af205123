#include "megatron/datasets/punkt_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megatron/datasets/punkt_words.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

using punkt::FirstCase;
using punkt::Word;
using Counts = std::unordered_map<std::string, std::int64_t>;

// The thresholds of the paper.
constexpr double kAbbreviation = 0.3, kCollocation = 7.88, kSentenceStarter = 30;
constexpr std::int64_t kRareBelow = 5, kLeastPairs = 2;

std::int64_t count_of(const Counts& counts, const std::string& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

/// Dunning's log-likelihood ratio of `a` and `b` being found together `both` times, in n words.
double log_likelihood_ratio(std::int64_t a, std::int64_t b, std::int64_t both, std::int64_t n) {
  const auto x = [](std::int64_t value) { return static_cast<double>(value); };
  const double p = x(b) / x(n), p1 = x(both) / x(a);
  const double p2 = n == a ? 1.0 : x(b - both) / x(n - a);
  double sum = 0;
  if (p > 0 && p < 1) {  // otherwise the logarithms are not defined
    const double first = x(both) * std::log(p) + x(a - both) * std::log(1.0 - p);
    const double second = x(b - both) * std::log(p) + x(n - a - b + both) * std::log(1.0 - p);
    sum = first + second;
  }
  if (a != both && p1 > 0 && p1 < 1)
    sum -= x(both) * std::log(p1) + x(a - both) * std::log(1.0 - p1);
  if (b != both && p2 > 0 && p2 < 1)
    sum -= x(b - both) * std::log(p2) + x(n - a - b + both) * std::log(1.0 - p2);
  return -2.0 * sum;
}

/// The ratio for a word and the period behind it, with the paper's fixed probability 0.99.
double period_likelihood_ratio(std::int64_t words, std::int64_t periods, std::int64_t both,
                               std::int64_t n) {
  const double p1 = static_cast<double>(periods) / static_cast<double>(n), p2 = 0.99;
  const auto with = static_cast<double>(both), without = static_cast<double>(words - both);
  const double null = with * std::log(p1 + 1e-8) + without * std::log(1.0 - p1 + 1e-8);
  const double alternative = with * std::log(p2) + without * std::log(1.0 - p2);
  return -2.0 * (null - alternative);
}

class Trainer {
 public:
  explicit Trainer(std::string_view text) : words_(punkt::words_of(text)) {}

  PunktParameters train() {
    count_types();
    find_abbreviations();
    for (Word& word : words_) {
      punkt::annotate(word, parameters_);
      num_ends_ += word.ends_sentence ? 1 : 0;
    }
    find_contexts();
    for (std::size_t i = 0; i + 1 < words_.size(); ++i) see_pair(words_[i], words_[i + 1]);
    find_sentence_starters();
    find_collocations();
    return std::move(parameters_);
  }

 private:
  std::int64_t num_words() const { return static_cast<std::int64_t>(words_.size()); }
  std::int64_t count(const std::string& type) const { return count_of(types_, type); }
  std::int64_t count_with_period(const std::string& type) const {
    return count(type) + count(type + ".");
  }

  void count_types() {
    for (const Word& word : words_) {
      ++types_[word.type];
      num_periods_ += word.has_final_period() ? 1 : 0;
    }
  }

  void find_abbreviations() {
    for (const auto& [type, count_with] : types_) {
      if (!type.ends_with('.') || !punkt::has_letter(type)) continue;
      const std::string bare = type.substr(0, type.size() - 1);
      const std::int64_t count_without = count(bare);
      const auto periods = static_cast<double>(std::ranges::count(bare, '.') + 1);
      const double letters = static_cast<double>(count_characters(bare)) - periods + 1;
      const double score = period_likelihood_ratio(count_with + count_without, num_periods_,
                                                   count_with, num_words()) *
                           std::exp(-letters) * periods *
                           std::pow(letters, -static_cast<double>(count_without));
      if (score >= kAbbreviation) parameters_.abbreviations.insert(bare);
    }
  }

  void find_contexts() {
    enum class Place { start, within, unknown } place = Place::within;
    for (const Word& word : words_) {
      if (word.begins_paragraph && place != Place::unknown) place = Place::start;
      if (word.begins_line && place == Place::within) place = Place::unknown;
      const FirstCase first = word.first_case();
      if (first != FirstCase::none) {
        const bool upper = first == FirstCase::upper;
        const int bit = place == Place::start    ? (upper ? kUpperAtStart : kLowerAtStart)
                        : place == Place::within ? (upper ? kUpperWithin : kLowerWithin)
                                                 : (upper ? kUpperUnknown : kLowerUnknown);
        parameters_.contexts[word.type_without_sentence_period()] |= bit;
      }
      if (word.ends_sentence) {
        place = word.is_number() || word.is_initial() ? Place::unknown : Place::start;
      } else {
        place = word.is_ellipsis || word.is_abbreviation ? Place::unknown : Place::within;
      }
    }
  }

  /// A rare word with a period is an abbreviation if what follows it does not begin a sentence.
  bool is_rare_abbreviation(const Word& word, const Word& next) const {
    if (word.is_abbreviation || !word.ends_sentence) return false;
    const std::string type = word.type_without_sentence_period();
    std::string shorter = type;  // nltk counts the type without its last character too
    if (!shorter.empty()) {
      std::size_t end = shorter.size();
      previous_code_point(type, end);
      shorter.resize(end);
    }
    if (parameters_.abbreviations.contains(type) || count(type) + count(shorter) >= kRareBelow)
      return false;
    if (next.text[0] == ',' || next.text[0] == ':' || next.text[0] == ';') return true;
    if (next.first_case() != FirstCase::lower) return false;
    const int seen = parameters_.context(next.type_without_sentence_period());
    return (seen & kUpperAtStart) != 0 && (seen & kUpperWithin) == 0;
  }

  void see_pair(const Word& word, const Word& next) {
    if (!word.has_final_period()) return;
    if (is_rare_abbreviation(word, next))
      parameters_.abbreviations.insert(word.type_without_period());
    const bool is_number_or_initial = word.is_number() || word.is_initial();
    if (!word.ends_sentence) return;
    if (!is_number_or_initial && next.is_alphabetic()) ++starters_[next.type];
    if (is_number_or_initial && punkt::has_letter(word.type) && punkt::has_letter(next.type))
      ++pairs_[word.type_without_period() + "\t" + next.type_without_sentence_period()];
  }

  void find_sentence_starters() {
    for (const auto& [type, at_start] : starters_) {
      const std::int64_t all = count_with_period(type);
      const double ratio = static_cast<double>(num_words()) / static_cast<double>(num_ends_);
      if (all >= at_start &&
          log_likelihood_ratio(num_ends_, all, at_start, num_words()) >= kSentenceStarter &&
          ratio > static_cast<double>(all) / static_cast<double>(at_start))
        parameters_.sentence_starters.insert(type);
    }
  }

  void find_collocations() {
    for (const auto& [pair, both] : pairs_) {
      const std::size_t tab = pair.find('\t');
      const std::string first = pair.substr(0, tab), second = pair.substr(tab + 1);
      if (parameters_.sentence_starters.contains(second)) continue;
      const std::int64_t a = count_with_period(first), b = count_with_period(second);
      if (a < 2 || b < 2 || both < kLeastPairs || both > std::min(a, b)) continue;
      if (log_likelihood_ratio(a, b, both, num_words()) >= kCollocation &&
          static_cast<double>(num_words()) / static_cast<double>(a) >
              static_cast<double>(b) / static_cast<double>(both))
        parameters_.collocations.insert(pair);
    }
  }

  std::vector<Word> words_;
  Counts types_, starters_, pairs_;
  std::int64_t num_periods_ = 0, num_ends_ = 0;
  PunktParameters parameters_;
};

}  // namespace

PunktParameters train_punkt(std::string_view text) { return Trainer(text).train(); }

}  // namespace megatron
