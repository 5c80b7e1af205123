#include "megatron/tokenizers/sentencepiece/pieces.h"

#include "megatron/tokenizers/sentencepiece/model_file.h"
#include "megatron/tokenizers/sentencepiece/normalizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::sentencepiece {

CharacterTable::CharacterTable(const ModelFile& model, const Pieces& pieces) : entries_(kSize) {
  for (std::int32_t id = 0; id < pieces.size(); ++id) {
    const std::string_view text = model.pieces[static_cast<std::size_t>(id)].text;
    std::size_t end = 0;
    const char32_t first = next_code_point(text, end);
    if (end == text.size()) {
      if (first < kSize) entries_[first] |= static_cast<std::uint32_t>(id + 1) << 1;
      continue;
    }
    if (!pieces.is_segmentable(id)) continue;
    for (std::size_t at = 0; at < text.size();)
      if (const char32_t c = next_code_point(text, at); c < kSize) entries_[c] |= kMerged;
  }
}

namespace {

/// Returns whether ▁ follows another character in `text`.
bool has_inner_space(std::string_view text) {
  while (text.starts_with(kSpaceSymbol)) text.remove_prefix(kSpaceSymbol.size());
  return text.find(kSpaceSymbol) != std::string_view::npos;
}

}  // namespace

Pieces::Pieces(const ModelFile& model) : unk_id_(model.unk_id) {
  constexpr std::size_t kAhead = 8;
  std::size_t num_bytes = 0;
  for (const Piece& piece : model.pieces) num_bytes += piece.text.size();
  segmentable_.reserve(model.pieces.size(), num_bytes);
  scores_.reserve(model.pieces.size());
  types_.reserve(model.pieces.size());
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    if (i + kAhead < model.pieces.size()) segmentable_.prefetch(model.pieces[i + kAhead].text);
    scores_.push_back(piece.score);
    types_.push_back(piece.type);
    (is_segmentable(id) ? segmentable_ : reserved_).add(piece.text, id);
    if (is_segmentable(id) && has_inner_space(piece.text)) split_at_spaces_ = false;
    if (piece.type == PieceType::user_defined) symbols_.add(piece.text, id);
    if (piece.type == PieceType::byte)
      id_of_byte_[static_cast<std::size_t>(byte_of_piece(piece.text))] = id;
  }
}

std::int32_t Pieces::id_of(std::string_view text) const {
  const std::int32_t reserved = reserved_.find(text);
  if (reserved >= 0) return reserved;
  const std::int32_t id = segmentable_.find(text);
  return id >= 0 ? id : unk_id_;
}

std::size_t Pieces::prefix_length(std::string_view text, bool& is_symbol) const {
  if (!symbols_.empty()) {
    if (const std::size_t length = symbols_.match_at(text).length; length != 0) {
      is_symbol = true;
      return length;
    }
  }
  is_symbol = false;
  std::size_t length = 0;
  next_code_point(text, length);
  return length;
}

}  // namespace megatron::sentencepiece
