#include "megatron/tokenizers/training/unigram_lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Returns log(eˣ + eʸ); a term below e⁻⁵⁰ of the other counts nothing.
double log_sum_exp(double x, double y) {
  constexpr double kNegligible = 50;
  const double low = std::min(x, y), high = std::max(x, y);
  return high > low + kNegligible ? high : high + std::log(std::exp(low - high) + 1);
}

}  // namespace

UnigramPieces::UnigramPieces(std::vector<ScoredPiece> pieces) : pieces_(std::move(pieces)) {
  piece_of_number_.resize(pieces_.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    piece_of_number_[i] = static_cast<std::int32_t>(i);
    if (i > 0) trie_.add(pieces_[i].first, static_cast<std::int32_t>(i));
  }
  trie_.finish();
  find_min_score();
}

void UnigramPieces::find_min_score() {
  min_score_ = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < pieces_.size(); ++i)
    min_score_ = std::min(min_score_, pieces_[i].second);
}

void UnigramPieces::update(const std::vector<double>& scores) {
  std::vector<std::int32_t> moved(pieces_.size(), -1);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (i > 0 && std::isnan(scores[i])) continue;
    moved[i] = static_cast<std::int32_t>(kept);
    if (kept != i) pieces_[kept].first = std::move(pieces_[i].first);
    pieces_[kept++].second = scores[i];
  }
  pieces_.resize(kept);
  for (std::int32_t& piece : piece_of_number_)
    if (piece >= 0) piece = moved[static_cast<std::size_t>(piece)];
  find_min_score();
}

void UnigramLattice::fill(const UnigramPieces& model, std::string_view word) {
  nodes_.clear();
  for (std::size_t at = 0; at < word.size();) {
    std::size_t after = at;
    next_code_point(word, after);
    model.for_each_at(word, at, after, [&](std::size_t end, std::int32_t piece, double score) {
      nodes_.push_back(
          {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end), piece, score});
    });
    at = after;
  }
}

void UnigramLattice::add_expected(const UnigramPieces& model, const CountedWord& word,
                                  std::vector<double>& expected) {
  fill(model, word.word);
  const std::size_t size = word.word.size();
  const auto add = [&](double& sum, std::size_t at, double value) {
    sum = is_set_[at] ? log_sum_exp(sum, value) : value;
    is_set_[at] = true;
  };
  alpha_.assign(size + 1, 0);
  beta_.assign(size + 1, 0);
  is_set_.assign(size + 1, false);
  for (const Node& node : nodes_) add(alpha_[node.end], node.end, node.score + alpha_[node.begin]);
  is_set_.assign(size + 1, false);
  for (auto last = nodes_.end(); last != nodes_.begin();) {
    auto first = last - 1;  // the nodes of one beginning, the shortest first
    while (first != nodes_.begin() && (first - 1)->begin == first->begin) --first;
    for (auto node = first; node != last; ++node)
      add(beta_[node->begin], node->begin, node->score + beta_[node->end]);
    last = first;
  }
  const double total = alpha_[size];
  for (const Node& node : nodes_)
    expected[static_cast<std::size_t>(node.piece)] +=
        static_cast<double>(word.count) *
        std::exp(alpha_[node.begin] + node.score + beta_[node.end] - total);
}

std::span<const std::int32_t> UnigramLattice::best(const UnigramPieces& model,
                                                   std::string_view word) {
  fill(model, word);
  first_.assign(word.size() + 1, {});
  first_[0].is_set = true;
  for (const Node& node : nodes_) {
    const double score = first_[node.begin].score + node.score;
    Path& path = first_[node.end];
    if (!path.is_set || score > path.score) path = {score, node.begin, node.piece, 0, true};
  }
  pieces_.clear();
  for (std::size_t end = word.size(); end > 0; end = first_[end].begin)
    pieces_.push_back(first_[end].piece);
  return pieces_;
}

std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> UnigramLattice::two_best(
    const UnigramPieces& model, std::string_view word) {
  fill(model, word);
  first_.assign(word.size() + 1, {});
  second_.assign(word.size() + 1, {});
  first_[0].is_set = true;
  const auto offer = [&](std::size_t end, const Path& path) {
    if (!first_[end].is_set || path.score > first_[end].score) {
      second_[end] = first_[end];
      first_[end] = path;
    } else if (!second_[end].is_set || path.score > second_[end].score) {
      second_[end] = path;
    }
  };
  for (const Node& node : nodes_) {
    const Path& first = first_[node.begin];
    offer(node.end, {first.score + node.score, node.begin, node.piece, 0, true});
    if (const Path& second = second_[node.begin]; second.is_set)
      offer(node.end, {second.score + node.score, node.begin, node.piece, 1, true});
  }
  const auto pieces_of = [&](int rank) {
    std::vector<std::int32_t> pieces;
    for (std::size_t end = word.size(); end > 0;) {
      const Path& path = rank == 0 ? first_[end] : second_[end];
      pieces.push_back(path.piece);
      end = path.begin;
      rank = path.rank;
    }
    return pieces;
  };
  const bool has_second = second_[word.size()].is_set;
  return {pieces_of(0), has_second ? pieces_of(1) : std::vector<std::int32_t>()};
}

}  // namespace megatron
