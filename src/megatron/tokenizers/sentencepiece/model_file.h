// Reads a SentencePiece model, the protobuf ModelProto (sentencepiece_model.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "megatron/base/huge_pages.h"

namespace megatron::sentencepiece {

enum class PieceType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

enum class ModelType : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };

struct NormalizerSpec {
  std::string precompiled_charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

struct ModelFile {
  HugePageVector<Piece> pieces;  ///< by id
  ModelType type = ModelType::unigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::string bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  std::string unk_surface = " \xE2\x81\x87 ";
  NormalizerSpec normalizer, denormalizer;
  std::int32_t unk_id = -1;
};

/// Throws a UserError that names the file and what is wrong in it.
ModelFile read_model_file(const std::filesystem::path& path);

/// Returns the byte of a piece <0xHH>; −1 for other texts.
int byte_of_piece(std::string_view text);

}  // namespace megatron::sentencepiece
