// The best segmentation of a text into pieces with scores: the Viterbi search of Unigram models
// (Kudo, "Subword Regularization", 2018).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/character_trie.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

/// A part of a text, from byte `begin` to byte `end`, and the id of its piece.
struct TextPart {
  std::size_t begin = 0, end = 0;
  std::int32_t id = -1;
};

/// The search. Sums have the type `Score`, because those of the packages differ in it. An object
/// keeps its memory for the next text. Not thread-safe.
template <class Score>
class BestSegmentation {
 public:
  /// Calls found(part) with the parts of `text`, valid UTF-8, that have the highest sum of scores,
  /// in the order of the text. A piece of the trie has score_of(id). Where no piece is one
  /// character long, unknown(character) returns the id of that character, whose score is
  /// `unknown_score`. Of equal sums the one with the longer last part wins. The sums begin with
  /// `before`; returns that of the whole text. At a place whose sum exceeds `limit`, it is
  /// subtracted from all, so that they begin at 0 again. Memory does not grow with the text where
  /// pieces end together, such as at its spaces.
  template <class ScoreOf, class Unknown, class Found>
  Score run(const CharacterTrie& trie, std::string_view text, const ScoreOf& score_of,
            Score unknown_score, const Unknown& unknown, const Found& found, Score before = 0,
            Score limit = std::numeric_limits<Score>::infinity());

 private:
  static constexpr std::size_t kWindow = std::size_t{1} << 14;
  static constexpr std::size_t kNone = ~std::size_t{0};

  /// A place between characters, and the last part of the best segmentation that ends there.
  struct Place {
    std::size_t byte;
    std::size_t begin = kNone;  ///< the place where the part begins; kNone: none ends here yet
    Score score = 0;
    std::int32_t id = -1;
  };

  void read(const CharacterTrie& trie, std::string_view text, std::size_t count);
  void forget_before(std::size_t place);
  template <class Found>
  void find_until(std::size_t last, const Found& found);

  std::u32string codes_;       ///< in the trie, of the characters that were read
  std::vector<Place> places_;  ///< before each of them and after the last
  std::vector<TextPart> parts_;
};

/// Reads `count` more characters of the text, or those that are left.
template <class Score>
void BestSegmentation<Score>::read(const CharacterTrie& trie, std::string_view text,
                                   std::size_t count) {
  std::size_t byte = places_.back().byte;
  for (; count > 0 && byte < text.size(); --count) {
    codes_ += trie.code(next_code_point(text, byte));
    places_.push_back({.byte = byte});
  }
}

/// Drops the places before `place`, which becomes the first one.
template <class Score>
void BestSegmentation<Score>::forget_before(std::size_t place) {
  const auto count = static_cast<std::ptrdiff_t>(place);
  codes_.erase(codes_.begin(), codes_.begin() + count);
  places_.erase(places_.begin(), places_.begin() + count);
}

template <class Score>
template <class Found>
void BestSegmentation<Score>::find_until(std::size_t last, const Found& found) {
  parts_.clear();
  for (std::size_t end = last; end > 0; end = places_[end].begin) {
    const Place& place = places_[end];
    parts_.push_back({places_[place.begin].byte, place.byte, place.id});
  }
  for (std::size_t i = parts_.size(); i > 0; --i) found(parts_[i - 1]);
}

template <class Score>
template <class ScoreOf, class Unknown, class Found>
Score BestSegmentation<Score>::run(const CharacterTrie& trie, std::string_view text,
                                   const ScoreOf& score_of, Score unknown_score,
                                   const Unknown& unknown, const Found& found, Score before,
                                   Score limit) {
  codes_.clear();
  codes_.reserve(std::min(text.size(), kWindow));
  places_.reserve(std::min(text.size(), kWindow) + 1);
  places_.assign(1, {.byte = 0, .score = before});
  std::size_t reach = 0;  // the farthest end of a part
  for (std::size_t at = 0;; ++at) {
    if (codes_.size() - at < std::max<std::size_t>(trie.longest(), 1) &&
        places_.back().byte < text.size()) {
      read(trie, text, trie.longest() + kWindow);
    }
    if (at == codes_.size()) break;
    // No part reaches across this place: the best ends here too. Erasing is worth it only when
    // fewer places are moved than dropped.
    if (reach == at && at >= std::max(kWindow, codes_.size() - at)) {
      find_until(at, found);
      forget_before(at);
      reach = at = 0;
    }
    if (const Score sum = places_[at].score; std::abs(sum) > limit)
      for (std::size_t place = at; place <= reach; ++place) places_[place].score -= sum;
    const Score here = places_[at].score;
    bool has_single = false;
    const auto offer = [&](std::size_t length, std::int32_t id, Score sum) {
      Place& place = places_[at + length];
      // Selections, because no branch would be guessed.
      const bool is_better =
          static_cast<int>(sum > place.score) | static_cast<int>(place.begin == kNone);
      place.begin = is_better ? at : place.begin;
      place.score = is_better ? sum : place.score;
      place.id = is_better ? id : place.id;
      reach = std::max(reach, at + length);
    };
    trie.for_each_prefix(std::u32string_view(codes_).substr(at),
                         [&](std::size_t length, std::int32_t id) {
                           offer(length, id, score_of(id) + here);
                           has_single = has_single || length == 1;
                         });
    if (!has_single) {
      const std::size_t byte = places_[at].byte;
      offer(1, unknown(text.substr(byte, places_[at + 1].byte - byte)), unknown_score + here);
    }
  }
  find_until(codes_.size(), found);
  return places_.back().score;
}

}  // namespace megatron
