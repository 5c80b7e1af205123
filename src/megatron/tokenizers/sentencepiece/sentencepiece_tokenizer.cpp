#include "megatron/tokenizers/sentencepiece/sentencepiece_tokenizer.h"

#include <algorithm>
#include <bit>
#include <span>

#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {

using sentencepiece::EncodedPiece;
using sentencepiece::kSpaceSymbol;
using sentencepiece::ModelType;
using sentencepiece::PieceType;

namespace {

/// Appends the text of byte pieces; every byte that begins no character becomes U+FFFD.
void append_bytes(std::string& text, std::string& bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const std::string character = bytes.substr(i, length);
    if (character.size() == length && !replace_invalid_utf8(character)) {
      text += character;
      i += length;
    } else {
      text += "\xEF\xBF\xBD";
      ++i;
    }
  }
  bytes.clear();
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& path,
                                               std::string_view name)
    : model_(sentencepiece::read_model_file(path)),
      pieces_(model_),
      characters_(model_, pieces_),
      normalizer_(model_.normalizer, model_.treat_whitespace_as_suffix,
                  path.string() + ": normalizer_spec"),
      name_(name),
      bos_(control_id(model_.bos_piece)),
      eos_(control_id(model_.eos_piece)),
      pad_(control_id(model_.pad_piece)),
      cache_owner_(WordCache::new_owner()) {
  normalizer_.keep_symbols(&pieces_.symbols());
  if (!model_.denormalizer.precompiled_charsmap.empty())
    denormalizer_.emplace(model_.denormalizer, false, path.string() + ": denormalizer_spec");
  if (model_.type == ModelType::bpe) bpe_.emplace(model_, pieces_, characters_);
  if (model_.type == ModelType::unigram) unigram_.emplace(model_, pieces_);
}

std::int32_t SentencePieceTokenizer::control_id(const std::string& piece) const {
  const std::int32_t id = pieces_.id_of(piece);
  return pieces_.type(id) == PieceType::control ? id : -1;
}

std::int32_t SentencePieceTokenizer::find(std::string_view token) const {
  const std::int32_t id = pieces_.id_of(token);
  return id != pieces_.unk_id() || token == model_.pieces[static_cast<std::size_t>(id)].text ? id
                                                                                             : -1;
}

std::string SentencePieceTokenizer::token(std::int32_t id) const {
  return id >= 0 && id < pieces_.size() ? model_.pieces[static_cast<std::size_t>(id)].text : "";
}

std::string SentencePieceTokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= pieces_.size() || id == pieces_.unk_id()) return "";
  if (pieces_.type(id) == PieceType::byte)
    return {static_cast<char>(sentencepiece::byte_of_piece(token(id)))};
  bool removed_space = false;
  return surface(id, /*at_start=*/false, SpecialTokens::skip, removed_space);
}

bool SentencePieceTokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < pieces_.size() && pieces_.type(id) == PieceType::control;
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  const std::string normalized = normalizer_.apply(text);
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  if (bpe_ && pieces_.split_at_spaces()) {
    encode_words(normalized, ids);
  } else if (unigram_ && pieces_.split_at_spaces()) {
    encode_unigram_words(normalized, ids);
  } else if (unigram_) {
    sentencepiece::UnigramModel::Search search;
    unigram_->encode(normalized, search, [&](const EncodedPiece& piece) { append_id(piece, ids); });
  } else {
    std::vector<EncodedPiece> encoded;
    encode_normalized(normalized, encoded);
    for (const EncodedPiece& piece : encoded) append_id(piece, ids);
  }
  if (!model_.byte_fallback) {  // a run of unknown pieces is one
    const auto both_unknown = [this](std::int32_t a, std::int32_t b) {
      return a == pieces_.unk_id() && b == pieces_.unk_id();
    };
    ids.erase(std::unique(ids.begin(), ids.end(), both_unknown), ids.end());
  }
  return ids;
}

/// Encodes the parts of `word` one by one: characters that are merged with no other, and, by
/// encode(part), the texts between them.
template <class Encode>
void SentencePieceTokenizer::encode_parts(std::string_view word, WordCache& cache,
                                          std::vector<std::int32_t>& ids,
                                          const Encode& encode) const {
  const auto each_piece = [this](const auto& add) {
    for (const sentencepiece::Piece& piece : model_.pieces) add(piece.text);
  };
  const auto encode_merged = [&](std::string_view part) {
    if (part.empty() || parts_.encode(part, each_piece, cache, ids, encode)) return;
    if (part.size() == word.size()) return encode(part);
    cache.encode_part(part, {0, part.size()}, ids, encode);
  };
  std::size_t begin = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t here = at;
    const char32_t c = next_code_point(word, at);
    if (!characters_.is_alone(c)) continue;
    encode_merged(word.substr(begin, here - begin));
    begin = at;
    if (const std::int32_t id = characters_.id(c); id >= 0 && id != pieces_.unk_id()) {
      ids.push_back(id);
    } else {
      append_unknown(word.substr(here, at - here), ids);
    }
  }
  encode_merged(word.substr(begin));
}

/// Calls found(word, later) for the words of `text`, each of which begins with its spaces. `later`
/// is the word after the next one.
template <class Word>
void for_each_word(std::string_view text, const Word& found) {
  const auto word_at = [&](std::size_t begin) -> Span {
    std::size_t end = begin;
    while (text.substr(end).starts_with(kSpaceSymbol)) end += kSpaceSymbol.size();
    return {begin, std::min(text.find(kSpaceSymbol, end), text.size())};
  };
  Span word = word_at(0), next = word_at(word.end);
  for (Span third; word.begin < text.size(); word = next, next = third) {
    third = word_at(next.end);
    found(word, third);
  }
}

void SentencePieceTokenizer::encode_words(std::string_view text,
                                          std::vector<std::int32_t>& ids) const {
  WordCache& cache = WordCache::of_thread(cache_owner_);
  std::vector<EncodedPiece> encoded;
  const auto merge = [&](std::string_view part) {
    encoded.clear();
    bpe_->encode(part, encoded);
    for (const EncodedPiece& piece : encoded) append_id(piece, ids);
  };
  for_each_word(text, [&](const Span& word, const Span& later) {
    cache.prefetch(text, later);
    cache.encode(text, word, ids,
                 [&](std::string_view bytes) { encode_parts(bytes, cache, ids, merge); });
  });
}

/// Returns whether the word is likely to come again: sentences of scripts without spaces are not.
bool is_worth_remembering(std::string_view word) {
  if (word.size() <= WordCache::kMostBytes) return true;
  return word.size() <= WordCache::kMostLongBytes && std::ranges::all_of(word, [](char c) {
           return static_cast<unsigned char>(c) < 0x80 ||
                  kSpaceSymbol.find(c) != std::string_view::npos;
         });
}

/// Encodes the words one by one. The cache holds for each word its margin, as the bits of an id,
/// and its ids.
void SentencePieceTokenizer::encode_unigram_words(std::string_view text,
                                                  std::vector<std::int32_t>& ids) const {
  WordCache& cache = WordCache::of_thread(cache_owner_);
  std::vector<std::int32_t> entry;
  sentencepiece::UnigramModel::Search search;
  float sum = 0;
  const auto append = [&](std::string_view word) {
    sum = unigram_->encode(
        word, search, [&](const EncodedPiece& piece) { append_id(piece, ids); }, sum);
  };
  for_each_word(text, [&](const Span& span, const Span& later) {
    cache.prefetch(text, later);
    const std::string_view word = text.substr(span.begin, span.end - span.begin);
    if (!is_worth_remembering(word)) return append(word);
    entry.clear();
    cache.encode(text, span, entry, [&](std::string_view bytes) {
      entry.push_back(0);
      entry.front() = std::bit_cast<std::int32_t>(unigram_->encode_exactly(
          bytes, [&](const EncodedPiece& piece) { append_id(piece, entry); }));
    });
    if (!unigram_->is_certain(std::bit_cast<float>(entry.front()), word.size(), sum))
      return append(word);
    for (const std::int32_t id : std::span(entry).subspan(1)) {
      ids.push_back(id);
      sum += unigram_->score_of_output(id);
    }
  });
}

void SentencePieceTokenizer::encode_normalized(std::string_view text,
                                               std::vector<EncodedPiece>& out) const {
  if (bpe_) return bpe_->encode(text, out);
  bool is_symbol = false;
  for (std::size_t at = 0; at < text.size();) {
    // Words begin at spaces, also if models put spaces behind words or have pieces of several.
    const std::size_t length = model_.type == ModelType::word
                                   ? std::min(text.find(kSpaceSymbol, at + 1), text.size()) - at
                                   : pieces_.prefix_length(text.substr(at), is_symbol);
    const std::string_view piece = text.substr(at, length);
    // A word that reads like a control or byte piece is none.
    const std::int32_t id = pieces_.find(piece);
    out.push_back({piece, id < 0 || pieces_.is_unused(id) ? pieces_.unk_id() : id});
    at += length;
  }
}

void SentencePieceTokenizer::append_id(const EncodedPiece& piece,
                                       std::vector<std::int32_t>& ids) const {
  if (piece.id == pieces_.unk_id()) {
    append_unknown(piece.text, ids);
  } else {
    ids.push_back(piece.id);
  }
}

void SentencePieceTokenizer::append_unknown(std::string_view text,
                                            std::vector<std::int32_t>& ids) const {
  if (!model_.byte_fallback) return ids.push_back(pieces_.unk_id());
  for (const char byte : text) ids.push_back(pieces_.id_of_byte(static_cast<unsigned char>(byte)));
}

/// Returns the text of a piece that is not a byte. At the start of a text, the space that the
/// normalizer added is removed.
std::string SentencePieceTokenizer::surface(std::int32_t id, bool at_start, SpecialTokens special,
                                            bool& removed_space) const {
  removed_space = false;
  std::string_view piece = model_.pieces[static_cast<std::size_t>(id)].text;
  if (pieces_.type(id) == PieceType::control)
    return special == SpecialTokens::keep ? std::string(piece) : std::string();
  if (id == pieces_.unk_id()) return model_.unk_surface;
  const bool removes_all = model_.normalizer.remove_extra_whitespaces;
  if (at_start && (model_.normalizer.add_dummy_prefix || removes_all) &&
      piece.starts_with(kSpaceSymbol)) {
    piece.remove_prefix(kSpaceSymbol.size());
    removed_space = !removes_all;
  }
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t space = std::min(piece.find(kSpaceSymbol, at), piece.size());
    text += piece.substr(at, space - at);
    if (space < piece.size()) text += ' ';
    at = space + kSpaceSymbol.size();
  }
  return text;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids,
                                           SpecialTokens special) const {
  std::string text, bytes;
  bool at_start = true, removed_space = false;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= pieces_.size()) continue;
    if (pieces_.type(id) == PieceType::byte) {
      bytes += static_cast<char>(
          sentencepiece::byte_of_piece(model_.pieces[static_cast<std::size_t>(id)].text));
      continue;
    }
    append_bytes(text, bytes);
    if (removed_space || !text.empty()) at_start = false;
    text += surface(id, at_start, special, removed_space);
  }
  append_bytes(text, bytes);
  return denormalizer_ ? denormalizer_->apply(text) : text;
}

}  // namespace megatron
