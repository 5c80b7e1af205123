#include "megatron/tokenizers/sentencepiece/model_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/protobuf.h"
#include "megatron/tokenizers/hash_bytes.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/vocabulary.h"

namespace megatron::sentencepiece {
namespace {

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw UserError({source + ": " + what, "", "check that the file is a whole SentencePiece model"});
}

/// Calls visit(field) for every field of `message`. Returns false if the message is malformed.
template <class Visit>
[[nodiscard]] bool read_fields(std::string_view message, Visit visit) {
  ProtobufReader reader(message);
  while (const auto field = reader.next()) visit(*field);
  return !reader.is_malformed();
}

template <class Visit>
void for_each_field(std::string_view message, const std::string& source, Visit visit) {
  if (!read_fields(message, visit)) refuse(source, "the protobuf message is malformed");
}

Piece read_piece(std::string_view message, std::size_t index, const std::string& source) {
  const auto refuse_piece = [&](const std::string& what) {
    refuse(source + ": piece " + std::to_string(index), what);
  };
  Piece piece;
  const bool is_whole = read_fields(message, [&](const ProtobufReader::FieldValue& value) {
    if (value.field == 1) piece.text = value.bytes;
    if (value.field == 2)
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(value.integer));
    if (value.field == 3) {
      if (value.integer < 1 || value.integer > 6)
        refuse_piece("type " + std::to_string(value.integer) + " is unknown");
      piece.type = static_cast<PieceType>(value.integer);
    }
  });
  if (!is_whole) refuse_piece("the protobuf message is malformed");
  if (piece.text.empty()) refuse_piece("the text is empty");
  if (replace_invalid_utf8(piece.text)) refuse_piece("the text is not UTF-8");
  if (!std::isfinite(piece.score)) refuse_piece("the score is not a number");
  return piece;
}

void read_trainer_spec(std::string_view message, const std::string& source, ModelFile& model) {
  for_each_field(message, source, [&](const ProtobufReader::FieldValue& value) {
    if (value.field == 3) {
      if (value.integer < 1 || value.integer > 4)
        refuse(source, "model type " + std::to_string(value.integer) + " is unknown");
      model.type = static_cast<ModelType>(value.integer);
    }
    if (value.field == 24) model.treat_whitespace_as_suffix = value.integer != 0;
    if (value.field == 35) model.byte_fallback = value.integer != 0;
    if (value.field == 44) model.unk_surface = value.bytes;
    if (value.field == 46) model.bos_piece = value.bytes;
    if (value.field == 47) model.eos_piece = value.bytes;
    if (value.field == 48) model.pad_piece = value.bytes;
  });
}

NormalizerSpec read_normalizer_spec(std::string_view message, const std::string& source) {
  NormalizerSpec spec;
  for_each_field(message, source, [&](const ProtobufReader::FieldValue& value) {
    if (value.field == 2) spec.precompiled_charsmap = value.bytes;
    if (value.field == 3) spec.add_dummy_prefix = value.integer != 0;
    if (value.field == 4) spec.remove_extra_whitespaces = value.integer != 0;
    if (value.field == 5) spec.escape_whitespaces = value.integer != 0;
  });
  return spec;
}

void check_byte_pieces(const ModelFile& model, const std::string& source) {
  std::array<bool, 256> found{};
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != PieceType::byte) continue;
    const int byte = byte_of_piece(model.pieces[id].text);
    const std::string where = source + ": piece " + std::to_string(id);
    if (!model.byte_fallback) refuse(where, "a byte piece without byte fallback");
    if (byte < 0) refuse(where, "a byte piece must be <0x00> to <0xFF>");
    found[static_cast<std::size_t>(byte)] = true;
  }
  if (model.byte_fallback && std::find(found.begin(), found.end(), false) != found.end())
    refuse(source, "byte fallback needs the 256 byte pieces");
}

/// Returns the first piece with the text of one before; the number of pieces if there is none.
std::size_t find_repeated(const HugePageVector<Piece>& pieces) {
  struct Slot {
    std::uint32_t hash = 0, number = 0;  ///< the number from 1; 0: free
  };
  constexpr std::size_t kAhead = 8;
  HugePageVector<Slot> slots(std::bit_ceil(pieces.size() * 2));
  std::vector<std::uint32_t> hashes;
  hashes.reserve(pieces.size());
  for (const Piece& piece : pieces) hashes.push_back(hash_bytes(piece.text));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::uint32_t hash = hashes[i];
    if (i + kAhead < pieces.size())
      __builtin_prefetch(&slots[hashes[i + kAhead] & (slots.size() - 1)], 1);
    std::size_t at = hash & (slots.size() - 1);
    for (; slots[at].number > 0; at = (at + 1) & (slots.size() - 1))
      if (slots[at].hash == hash && pieces[slots[at].number - 1].text == pieces[i].text) return i;
    slots[at] = {hash, static_cast<std::uint32_t>(i + 1)};
  }
  return pieces.size();
}

void check_pieces(ModelFile& model, const std::string& source) {
  if (model.pieces.empty()) refuse(source, "there are no pieces");
  if (model.pieces.size() > static_cast<std::size_t>(kMaxTokenId))
    refuse(source, "there are more than " + std::to_string(kMaxTokenId) + " pieces");
  const std::size_t twice = find_repeated(model.pieces);
  if (twice < model.pieces.size())
    refuse(source, "piece " + std::to_string(twice) + " \"" + model.pieces[twice].text +
                       "\" is given twice");
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != PieceType::unknown) continue;
    if (model.unk_id >= 0) refuse(source, "there are two unknown pieces");
    model.unk_id = static_cast<std::int32_t>(id);
  }
  if (model.unk_id < 0) refuse(source, "there is no unknown piece");
  check_byte_pieces(model, source);
}

}  // namespace

int byte_of_piece(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const int high = digit(text[3]), low = digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

ModelFile read_model_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string source = path.string();
  ModelFile model;
  model.pieces.reserve(std::min<std::size_t>(file.size() / 16, 1 << 18));  // enough for most
  for_each_field(
      {reinterpret_cast<const char*>(file.data()), file.size()}, source,
      [&](const ProtobufReader::FieldValue& value) {
        if (value.field == 1)
          model.pieces.push_back(read_piece(value.bytes, model.pieces.size(), source));
        if (value.field == 2) read_trainer_spec(value.bytes, source + ": trainer_spec", model);
        if (value.field == 3)
          model.normalizer = read_normalizer_spec(value.bytes, source + ": normalizer_spec");
        if (value.field == 5)
          model.denormalizer = read_normalizer_spec(value.bytes, source + ": denormalizer_spec");
      });
  if (replace_invalid_utf8(model.unk_surface)) refuse(source, "the unk_surface is not UTF-8");
  check_pieces(model, source);
  return model;
}

}  // namespace megatron::sentencepiece
