// SentencePiece models (Kudo and Richardson, 2018): normalizer, BPE or Unigram, byte fallback.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "megatron/tokenizers/lazy_parts.h"
#include "megatron/tokenizers/sentencepiece/bpe_model.h"
#include "megatron/tokenizers/sentencepiece/normalizer.h"
#include "megatron/tokenizers/sentencepiece/pieces.h"
#include "megatron/tokenizers/sentencepiece/unigram_model.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {

/// encode() and decode() give the results of the sentencepiece package, without bos and eos.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `name` is the --tokenizer-type; the types differ in nothing else.
  SentencePieceTokenizer(const std::filesystem::path& path, std::string_view name);
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return pieces_.size(); }
  std::int32_t eod() const override { return eos_; }
  std::int32_t bos() const override { return bos_; }
  std::int32_t pad() const override { return pad_; }
  bool is_special(std::int32_t id) const override;
  std::int32_t find(std::string_view token) const override;
  std::int32_t unk() const override { return pieces_.unk_id(); }
  std::string token(std::int32_t id) const override;
  std::string token_bytes(std::int32_t id) const override;
  std::string_view name() const override { return name_; }

 private:
  void encode_normalized(std::string_view text,
                         std::vector<sentencepiece::EncodedPiece>& out) const;
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_unigram_words(std::string_view text, std::vector<std::int32_t>& ids) const;
  template <class Encode>
  void encode_parts(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids,
                    const Encode& encode) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;
  void append_id(const sentencepiece::EncodedPiece& piece, std::vector<std::int32_t>& ids) const;
  std::int32_t control_id(const std::string& piece) const;
  std::string surface(std::int32_t id, bool at_start, SpecialTokens special,
                      bool& removed_space) const;

  sentencepiece::ModelFile model_;
  sentencepiece::Pieces pieces_;
  sentencepiece::CharacterTable characters_;
  sentencepiece::Normalizer normalizer_;
  std::optional<sentencepiece::Normalizer> denormalizer_;
  std::optional<sentencepiece::BpeModel> bpe_;
  std::optional<sentencepiece::UnigramModel> unigram_;
  LazyParts parts_{IndependentParts::Boundaries::all};
  std::string_view name_;
  std::int32_t bos_, eos_, pad_;
  std::uint64_t cache_owner_;
};

}  // namespace megatron
