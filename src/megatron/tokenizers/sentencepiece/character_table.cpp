#include "megatron/tokenizers/sentencepiece/character_table.h"

#include "megatron/tokenizers/sentencepiece/model_file.h"
#include "megatron/tokenizers/sentencepiece/pieces.h"
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

}  // namespace megatron::sentencepiece
