#include "megatron/tokenizers/training/unigram_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "megatron/base/error.h"
#include "megatron/base/ordered_pool.h"
#include "megatron/tokenizers/training/seed_pieces.h"
#include "megatron/tokenizers/training/unigram_lattice.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr double kLeftOut = std::numeric_limits<double>::quiet_NaN();
/// Pieces that are expected less often are left out.
constexpr double kLeastExpected = 0.5;
/// Sums are made in so many parts, whatever the number of threads.
constexpr std::size_t kParts = 64;

/// The digamma function, by its asymptotic series at x ≥ 7.
double digamma(double x) {
  double result = 0;
  for (; x < 7; x += 1) result -= 1 / x;
  x -= 0.5;
  const double square = 1 / x * (1 / x), fourth = square * square;
  return result + std::log(x) + 1.0 / 24 * square - 7.0 / 960 * fourth +
         31.0 / 8064 * fourth * square - 127.0 / 30720 * fourth * fourth;
}

class UnigramTraining {
 public:
  UnigramTraining(std::vector<CountedWord> words, const UnigramTrainerOptions& options)
      : words_(std::move(words)), options_(options) {
    std::ranges::sort(words_, {}, &CountedWord::word);
    desired_size_ = static_cast<std::size_t>(options.vocab_size) * 11 / 10;
    for (const CountedWord& word : words_)
      for (std::size_t i = 0; i < word.word.size();)
        characters_.insert(next_code_point(word.word, i));
    const std::size_t size = characters_.size() + num_special();
    if (size > static_cast<std::size_t>(options.vocab_size))
      throw UserError(
          {"--vocab-size " + std::to_string(options.vocab_size) + " is too small",
           "the special tokens and the characters are " + std::to_string(size) + " tokens",
           "give at least " + std::to_string(size)});
  }

  TrainedUnigram run() {
    std::vector<ScoredPiece> pieces = {{"<UNK>", kLeftOut}};
    for (ScoredPiece& piece : seed_pieces(words_, {options_.seed_size, options_.max_piece_length}))
      pieces.push_back(std::move(piece));
    UnigramPieces model(std::move(pieces));
    num_iterations_ = expected_iterations(model.size());
    for (;;) {
      for (std::int64_t i = 0; i < options_.n_sub_iterations; ++i) iterate(model);
      if (model.size() <= desired_size_) break;
      model = UnigramPieces(prune(model));
    }
    return finish(model);
  }

 private:
  bool adds_unk() const {
    return !options_.unk_token.empty() &&
           std::ranges::find(options_.special_tokens, options_.unk_token) ==
               options_.special_tokens.end();
  }
  std::size_t num_special() const { return options_.special_tokens.size() + (adds_unk() ? 1 : 0); }

  std::int64_t expected_iterations(std::size_t size) const {
    const double loops =
        (std::log(static_cast<double>(desired_size_)) - std::log(static_cast<double>(size))) /
        std::log(options_.shrinking_factor);
    return (std::max<std::int64_t>(0, static_cast<std::int64_t>(loops)) + 1) *
           options_.n_sub_iterations;
  }

  /// Adds up what `add(lattice, words, sums)` adds for parts of the words, of which threads take
  /// one after another.
  template <class Add>
  std::vector<double> sum_over_words(std::size_t size, const Add& add) const {
    std::size_t next_part = 0;
    const auto next = [&]() -> std::optional<std::span<const CountedWord>> {
      if (next_part == kParts) return std::nullopt;
      const std::size_t begin = words_.size() * next_part / kParts;
      const std::size_t end = words_.size() * ++next_part / kParts;
      return std::span(words_).subspan(begin, end - begin);
    };
    OrderedPool<std::span<const CountedWord>, std::vector<double>> pool(
        {.workers = options_.workers, .depth = options_.workers + 1}, next,
        [&](std::span<const CountedWord> words) {
          UnigramLattice lattice;
          std::vector<double> sums(size);
          for (const CountedWord& word : words) add(lattice, word, sums);
          return sums;
        });
    std::vector<double> total(size);
    while (const auto sums = pool.next())
      for (std::size_t i = 0; i < size; ++i) total[i] += (*sums)[i];
    return total;
  }

  /// One step of EM, with the digamma function of variational Bayes, which favors few pieces.
  void iterate(UnigramPieces& model) {
    const std::vector<double> expected =
        sum_over_words(model.size(), [&](UnigramLattice& lattice, const CountedWord& word,
                                         auto& sums) { lattice.add_expected(model, word, sums); });
    double sum = 0;
    for (std::size_t i = 1; i < expected.size(); ++i)
      if (expected[i] >= kLeastExpected) sum += expected[i];
    const double log_sum = digamma(sum);
    std::vector<double> scores(expected.size(), kLeftOut);
    for (std::size_t i = 1; i < expected.size(); ++i)
      if (expected[i] >= kLeastExpected) scores[i] = digamma(expected[i]) - log_sum;
    model.update(scores);
    if (options_.progress)
      options_.progress(std::min(++num_done_, num_iterations_), num_iterations_);
  }

  /// Returns the pieces of which the likelihood of the words needs most: those that have no
  /// alternative, then the others by what the likelihood loses without them.
  std::vector<ScoredPiece> prune(const UnigramPieces& model) const {
    const std::vector<double> counts = sum_over_words(
        model.size(), [&](UnigramLattice& lattice, const CountedWord& word, auto& sums) {
          for (const std::int32_t piece : lattice.best(model, word.word))
            sums[static_cast<std::size_t>(piece)] += static_cast<double>(word.count);
        });
    double sum = 0, num_words = 0;
    for (const double count : counts) sum += count;
    for (const CountedWord& word : words_) num_words += static_cast<double>(word.count);
    struct Candidate {
      std::size_t piece;
      double loss;
    };
    std::vector<Candidate> candidates;
    std::vector<ScoredPiece> kept = {model.pieces()[0]};
    UnigramLattice lattice;
    for (std::size_t i = 1; i < model.size(); ++i) {
      const auto [best, second] = lattice.two_best(model, model.pieces()[i].first);
      const bool is_best = second.empty() || best.size() == 1;
      const bool has_alternative = best.size() == 1 && !second.empty();
      if (counts[i] == 0 && !is_best) continue;
      if (!has_alternative) {
        kept.push_back(model.pieces()[i]);
      } else if (counts[i] > 0) {
        candidates.push_back({i, loss_without(i, second, counts, sum, num_words)});
      }
    }
    const auto shrunk =
        static_cast<std::size_t>(static_cast<double>(model.size()) * options_.shrinking_factor);
    const std::size_t size = std::max(desired_size_, shrunk);
    std::ranges::stable_sort(candidates, std::greater(), &Candidate::loss);
    for (const Candidate& candidate : candidates) {
      if (kept.size() == size) break;
      kept.push_back(model.pieces()[candidate.piece]);
    }
    return kept;
  }

  /// Returns about what the likelihood loses when the alternatives take the place of a piece, whose
  /// count they get. The new sum counts every piece of the model as an alternative, as the package
  /// does, where Kudo's own trainer counts those of this piece.
  static double loss_without(std::size_t piece, const std::vector<std::int32_t>& alternatives,
                             const std::vector<double>& counts, double sum, double num_words) {
    const double count = counts[piece];
    const double log_share = std::log(count) - std::log(sum);
    const double log_sum = std::log(sum + count * static_cast<double>(counts.size() - 1));
    double log_alternatives = 0;
    for (const std::int32_t other : alternatives)
      log_alternatives += std::log(counts[static_cast<std::size_t>(other)] + count) - log_sum;
    return count / num_words * (log_share - log_alternatives);
  }

  /// Returns the characters of the words and the first pieces, as many as fit, by falling scores.
  /// Characters that are no pieces get scores near the lowest.
  TrainedUnigram finish(const UnigramPieces& model) const {
    constexpr double kStep = 0.0001;
    std::unordered_map<std::string_view, double> scores;
    for (std::size_t i = 1; i < model.size(); ++i) scores.insert(model.pieces()[i]);
    std::unordered_set<std::string> inserted;
    std::vector<ScoredPiece> pieces;
    double lowest = 0;
    for (const char32_t c : characters_) {
      std::string text;
      append_utf8(text, c);
      const auto found = scores.find(text);
      pieces.emplace_back(text, found != scores.end() ? found->second : model.min_score() + lowest);
      if (found == scores.end()) lowest += kStep;
      inserted.insert(std::move(text));
    }
    const std::size_t size = static_cast<std::size_t>(options_.vocab_size) - num_special();
    for (std::size_t i = 1; i < model.size() && pieces.size() < size; ++i)
      if (inserted.insert(model.pieces()[i].first).second) pieces.push_back(model.pieces()[i]);
    std::ranges::stable_sort(pieces, std::greater(), &ScoredPiece::second);
    TrainedUnigram result;
    if (adds_unk()) result.pieces.emplace_back(options_.unk_token, 0.0);
    for (const std::string& token : options_.special_tokens) {
      if (token == options_.unk_token)
        result.unk_id = static_cast<std::int64_t>(result.pieces.size());
      result.pieces.emplace_back(token, 0.0);
    }
    if (adds_unk()) result.unk_id = 0;
    result.pieces.insert(result.pieces.end(), pieces.begin(), pieces.end());
    return result;
  }

  std::vector<CountedWord> words_;
  const UnigramTrainerOptions& options_;
  std::size_t desired_size_ = 0;
  std::set<char32_t> characters_;
  std::int64_t num_done_ = 0, num_iterations_ = 0;
};

}  // namespace

TrainedUnigram train_unigram(std::vector<CountedWord> words, const UnigramTrainerOptions& options) {
  return UnigramTraining(std::move(words), options).run();
}

}  // namespace megatron
