#include "megatron/tokenizers/sentencepiece/unigram_model.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron::sentencepiece {
namespace {

constexpr float kUnknownPenalty = 10;

/// Returns the score of a user-defined piece, since version 0.2.2 of the package: above those of
/// other pieces, and higher for one long piece than for several short ones.
float score_of_symbol(std::string_view text) {
  return static_cast<float>(0.1 * static_cast<double>(text.size() - 1));
}

}  // namespace

UnigramModel::UnigramModel(const ModelFile& model, const Pieces& pieces) : pieces_(pieces) {
  float min_score = FLT_MAX;
  for (const Piece& piece : model.pieces)
    if (piece.type == PieceType::normal) min_score = std::min(min_score, piece.score);
  unk_score_ = min_score - kUnknownPenalty;
  trie_.reserve(model.pieces.size());
  scores_.resize(model.pieces.size());
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    if (!pieces.is_segmentable(id) || pieces.is_unused(id)) continue;
    trie_.add(piece.text, id);
    scores_[i] = piece.type == PieceType::user_defined ? score_of_symbol(piece.text) : piece.score;
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

float UnigramModel::encode_exactly(std::string_view word, const Found& found) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  /// The two best segmentations that end behind a character, and the last piece of the first.
  struct End {
    double best = kNone, second = kNone;
    std::int32_t id = -1;
    std::size_t begin = 0;
  };
  MEGATRON_CHECK(word.size() <= WordCache::kMostLongBytes, "a word of ", word.size(), " bytes");
  constexpr std::size_t kMost = WordCache::kMostLongBytes;
  std::array<char32_t, kMost> codes;         // of the characters
  std::array<std::size_t, kMost + 1> bytes;  // where they begin
  std::size_t count = 0;
  for (std::size_t byte = 0; byte < word.size(); ++count) {
    bytes[count] = byte;
    codes[count] = trie_.code(next_code_point(word, byte));
  }
  bytes[count] = word.size();
  std::array<End, kMost + 1> ends;
  std::fill_n(ends.begin(), count + 1, End{});
  ends[0].best = 0;
  for (std::size_t at = 0; at < count; ++at) {
    const End here = ends[at];
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
    trie_.for_each_prefix({&codes[at], count - at}, [&](std::size_t length, std::int32_t id) {
      offer(at + length, id, static_cast<double>(scores_[static_cast<std::size_t>(id)]));
      has_single = has_single || length == 1;
    });
    if (!has_single) offer(at + 1, pieces_.unk_id(), static_cast<double>(unk_score_));
  }
  std::array<std::size_t, kMost> last;  // where the pieces end
  std::size_t num_pieces = 0;
  for (std::size_t end = count; end > 0; end = ends[end].begin) last[num_pieces++] = end;
  for (; num_pieces > 0; --num_pieces) {
    const End& end = ends[last[num_pieces - 1]];
    const std::size_t byte = bytes[end.begin];
    found({word.substr(byte, bytes[last[num_pieces - 1]] - byte), end.id});
  }
  // The sums are exact up to far less than the share that is taken off.
  const double margin = (ends[count].best - ends[count].second) * (1 - 1e-6) - 1e-9;
  return static_cast<float>(margin);
}

}  // namespace megatron::sentencepiece
