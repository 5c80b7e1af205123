#include "megatron/tokenizers/sentencepiece/unigram_model.h"

#include <algorithm>
#include <cfloat>

#include "megatron/tokenizers/utf8.h"

namespace megatron::sentencepiece {
namespace {

constexpr float kUnknownPenalty = 10, kSymbolPenalty = 0.1F;

struct Best {
  std::int32_t id = -1;
  float score = 0;
  std::size_t begin = ~std::size_t{0};
};

constexpr std::size_t kNoBegin = ~std::size_t{0};

}  // namespace

UnigramModel::UnigramModel(const ModelFile& model, const Pieces& pieces) : pieces_(pieces) {
  float min_score = FLT_MAX;
  max_score_ = FLT_MIN;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    if (piece.type == PieceType::normal) {
      min_score = std::min(min_score, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    }
    if (pieces.find(piece.text) >= 0 && piece.type != PieceType::unused)
      trie_.add(piece.text, static_cast<std::int32_t>(i));
  }
  trie_.finish();
  unk_score_ = min_score - kUnknownPenalty;
}

void UnigramModel::encode(std::string_view text, std::vector<EncodedPiece>& out) const {
  std::vector<Best> best(text.size() + 1);
  best[0].begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const float here = best[at].score;
    std::size_t after = at;
    next_code_point(text, after);
    bool has_single = false;
    const auto offer = [&](std::size_t end, std::int32_t id, float candidate) {
      if (best[end].begin == kNoBegin || candidate > best[end].score)
        best[end] = {id, candidate, at};
    };
    trie_.for_each_prefix(text.substr(at), [&](std::size_t length, std::int32_t id) {
      const float score = pieces_.type(id) == PieceType::user_defined
                              ? static_cast<float>(length) * max_score_ - kSymbolPenalty
                              : pieces_.score(id);
      offer(at + length, id, score + here);
      has_single = has_single || at + length == after;
    });
    if (!has_single) offer(after, pieces_.unk_id(), unk_score_ + here);
    at = after;
  }
  const std::size_t first = out.size();
  for (std::size_t end = text.size(); end > 0; end = best[end].begin)
    out.push_back({text.substr(best[end].begin, end - best[end].begin), best[end].id});
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

}  // namespace megatron::sentencepiece
