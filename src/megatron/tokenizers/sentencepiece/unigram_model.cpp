#include "megatron/tokenizers/sentencepiece/unigram_model.h"

#include <algorithm>
#include <cfloat>

#include "megatron/tokenizers/best_segmentation.h"

namespace megatron::sentencepiece {
namespace {

constexpr float kUnknownPenalty = 10, kSymbolPenalty = 0.1F;

}  // namespace

UnigramModel::UnigramModel(const ModelFile& model, const Pieces& pieces) : pieces_(pieces) {
  float min_score = FLT_MAX;
  max_score_ = FLT_MIN;
  trie_.reserve(model.pieces.size());
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    if (piece.type == PieceType::normal) {
      min_score = std::min(min_score, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    }
    const auto id = static_cast<std::int32_t>(i);
    if (pieces.is_segmentable(id) && !pieces.is_unused(id)) trie_.add(piece.text, id);
  }
  trie_.finish();
  unk_score_ = min_score - kUnknownPenalty;
}

void UnigramModel::encode(std::string_view text,
                          const std::function<void(const EncodedPiece&)>& found) const {
  const auto score_of = [&](std::size_t length, std::int32_t id) {
    return pieces_.type(id) == PieceType::user_defined
               ? static_cast<float>(length) * max_score_ - kSymbolPenalty
               : pieces_.score(id);
  };
  best_segmentation(
      trie_, text, score_of, unk_score_, [&](std::string_view) { return pieces_.unk_id(); },
      [&](const TextPart& part) {
        found({text.substr(part.begin, part.end - part.begin), part.id});
      });
}

}  // namespace megatron::sentencepiece
