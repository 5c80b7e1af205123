#include "megatron/tokenizers/sentencepiece/unigram_model.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/tokenizers/best_segmentation.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron::sentencepiece {
namespace {

constexpr float kUnknownPenalty = 10, kSymbolPenalty = 0.1F;

}  // namespace

UnigramModel::UnigramModel(const ModelFile& model, const Pieces& pieces) : pieces_(pieces) {
  float min_score = FLT_MAX, max_score = FLT_MIN;
  for (const Piece& piece : model.pieces) {
    if (piece.type != PieceType::normal) continue;
    min_score = std::min(min_score, piece.score);
    max_score = std::max(max_score, piece.score);
  }
  unk_score_ = min_score - kUnknownPenalty;
  trie_.reserve(model.pieces.size());
  scores_.resize(model.pieces.size());
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    if (!pieces.is_segmentable(id) || pieces.is_unused(id)) continue;
    trie_.add(piece.text, id);
    scores_[i] = piece.type == PieceType::user_defined
                     ? static_cast<float>(piece.text.size()) * max_score - kSymbolPenalty
                     : piece.score;
  }
  trie_.finish();
  output_scores_ = scores_;
  output_scores_[static_cast<std::size_t>(pieces.unk_id())] = unk_score_;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::int32_t id = pieces.id_of_byte(static_cast<unsigned char>(byte));
    if (id >= 0 && !is_continuation_byte(static_cast<char>(byte)))
      output_scores_[static_cast<std::size_t>(id)] = unk_score_;
  }
  for (const float score : output_scores_)
    largest_score_ = std::max(largest_score_, std::abs(score));
}

float UnigramModel::encode(std::string_view text, const Found& found, float before) const {
  return best_segmentation(
      trie_, text,
      [&](std::size_t, std::int32_t id) { return scores_[static_cast<std::size_t>(id)]; },
      unk_score_, [&](std::string_view) { return pieces_.unk_id(); },
      [&](const TextPart& part) {
        found({text.substr(part.begin, part.end - part.begin), part.id});
      },
      before);
}

float UnigramModel::encode_exactly(std::string_view word, const Found& found) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  /// The two best segmentations that end at a byte, and the last piece of the first.
  struct End {
    double best = kNone, second = kNone;
    std::int32_t id = -1;
    std::size_t begin = 0;
  };
  MEGATRON_CHECK(word.size() <= WordCache::kMostLongBytes, "a word of ", word.size(), " bytes");
  std::array<End, WordCache::kMostLongBytes + 1> ends;
  std::fill_n(ends.begin(), word.size() + 1, End{});
  ends[0].best = 0;
  for (std::size_t at = 0; at < word.size();) {
    const End here = ends[at];
    std::size_t after = at;
    next_code_point(word, after);
    const auto offer = [&](std::size_t end, std::int32_t id, double score) {
      End& other = ends[end];
      const double sum = here.best + score;
      if (sum > other.best) {
        other = {sum, std::max(other.best, here.second + score), id, at};
      } else {
        other.second = std::max(other.second, sum);
      }
    };
    bool has_single = false;
    trie_.for_each_prefix(word.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(at + length, id, static_cast<double>(scores_[static_cast<std::size_t>(id)]));
      has_single = has_single || at + length == after;
    });
    if (!has_single) offer(after, pieces_.unk_id(), static_cast<double>(unk_score_));
    at = after;
  }
  std::array<std::size_t, WordCache::kMostLongBytes> last;  // where the pieces end
  std::size_t count = 0;
  for (std::size_t end = word.size(); end > 0; end = ends[end].begin) last[count++] = end;
  for (; count > 0; --count) {
    const End& end = ends[last[count - 1]];
    found({word.substr(end.begin, last[count - 1] - end.begin), end.id});
  }
  // The sums are exact up to far less than the share that is taken off.
  const double margin = (ends[word.size()].best - ends[word.size()].second) * (1 - 1e-6) - 1e-9;
  return static_cast<float>(margin);
}

}  // namespace megatron::sentencepiece
