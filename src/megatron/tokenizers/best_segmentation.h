// The best segmentation of a text into pieces with scores: the Viterbi search of Unigram models
// (Kudo, "Subword Regularization", 2018).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/piece_trie.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

/// A part of a text, from byte `begin` to byte `end`, and the id of its piece.
struct TextPart {
  std::size_t begin = 0, end = 0;
  std::int32_t id = -1;
};

inline constexpr std::size_t kNoPart = ~std::size_t{0};

/// The last part of the best segmentation that ends at some byte.
template <class Score>
struct BestPart {
  std::int32_t id = -1;
  Score score = 0;
  std::size_t begin = kNoPart;
};

/// Returns the parts of the highest sum of scores, in the order of the text. Sums have the type
/// `Score`, because those of the packages differ in it. A piece of the trie has score_of(length,
/// id). Where no piece is one code point long, unknown(code point) returns the id of that code
/// point, whose score is `unknown_score`. Of equal sums the one with the longer last part wins.
template <class Score, class ScoreOf, class Unknown>
std::vector<TextPart> best_segmentation(const PieceTrie& trie, std::string_view text,
                                        const ScoreOf& score_of, Score unknown_score,
                                        const Unknown& unknown) {
  std::vector<BestPart<Score>> best(text.size() + 1);
  best[0].begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Score here = best[at].score;
    std::size_t after = at;
    next_code_point(text, after);
    bool has_single = false;
    const auto offer = [&](std::size_t end, std::int32_t id, Score sum) {
      if (best[end].begin == kNoPart || sum > best[end].score) best[end] = {id, sum, at};
    };
    trie.for_each_prefix(text.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(at + length, id, score_of(length, id) + here);
      has_single = has_single || at + length == after;
    });
    if (!has_single) offer(after, unknown(text.substr(at, after - at)), unknown_score + here);
    at = after;
  }
  std::vector<TextPart> parts;
  for (std::size_t end = text.size(); end > 0; end = best[end].begin)
    parts.push_back({best[end].begin, end, best[end].id});
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace megatron
