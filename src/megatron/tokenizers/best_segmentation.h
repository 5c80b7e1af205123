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

/// Calls found(part) with the parts of the highest sum of scores, in the order of the text. Sums
/// have the type `Score`, because those of the packages differ in it. A piece of the trie has
/// score_of(length, id). Where no piece is one code point long, unknown(code point) returns the id
/// of that code point, whose score is `unknown_score`. Of equal sums the one with the longer last
/// part wins. The sums begin with `before`; returns that of the whole text. Memory does not grow
/// with the text where pieces end together, such as at its spaces.
template <class Score, class ScoreOf, class Unknown, class Found>
Score best_segmentation(const PieceTrie& trie, std::string_view text, const ScoreOf& score_of,
                        Score unknown_score, const Unknown& unknown, const Found& found,
                        Score before = 0) {
  constexpr std::size_t kWindow = std::size_t{1} << 15;
  std::size_t base = 0;   // what ends here is found; best[i] ends at base + i
  std::size_t reach = 0;  // the farthest end of a part
  std::vector<BestPart<Score>> best(std::min(text.size(), 2 * kWindow) + 1);
  best[0] = {-1, before, 0};
  std::vector<TextPart> parts;
  const auto find_until = [&](std::size_t last) {
    parts.clear();
    for (std::size_t end = last; end > base;) {
      const BestPart<Score>& part = best[end - base];
      parts.push_back({part.begin, end, part.id});
      end = part.begin;
    }
    for (std::size_t i = parts.size(); i > 0; --i) found(parts[i - 1]);
  };
  for (std::size_t at = 0; at < text.size();) {
    if (reach == at && at - base >= kWindow) {  // no part reaches across: the best ends here too
      find_until(at);
      const Score score = best[at - base].score;
      std::fill_n(best.begin(), at - base + 1, BestPart<Score>{});
      best[0] = {-1, score, at};
      base = at;
    }
    const Score here = best[at - base].score;
    std::size_t after = at;
    next_code_point(text, after);
    bool has_single = false;
    const auto offer = [&](std::size_t end, std::int32_t id, Score sum) {
      if (end - base >= best.size())
        best.resize(std::min(2 * (end - base), text.size() - base) + 1);
      reach = std::max(reach, end);
      BestPart<Score>& part = best[end - base];
      if (part.begin == kNoPart || sum > part.score) part = {id, sum, at};
    };
    trie.for_each_prefix(text.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(at + length, id, score_of(length, id) + here);
      has_single = has_single || at + length == after;
    });
    if (!has_single) offer(after, unknown(text.substr(at, after - at)), unknown_score + here);
    at = after;
  }
  find_until(text.size());
  return best[text.size() - base].score;
}

}  // namespace megatron
