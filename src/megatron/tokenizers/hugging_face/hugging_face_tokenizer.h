// Reads the tokenizer.json format of the Hugging Face `tokenizers` package. encode() runs these
// stages:
//   text → added tokens (raw) → normalizer → added tokens (normalized) → pre-tokenizer → model →
//   post-processor
// The blocks "truncation" and "padding" are for batches of a model's inputs; documents are neither
// cut nor padded, so both are ignored.
#pragma once

#include <filesystem>
#include <memory>

#include "megatron/tokenizers/hugging_face/added_tokens.h"
#include "megatron/tokenizers/hugging_face/decoder.h"
#include "megatron/tokenizers/hugging_face/model.h"
#include "megatron/tokenizers/hugging_face/normalizer.h"
#include "megatron/tokenizers/hugging_face/post_processor.h"
#include "megatron/tokenizers/hugging_face/pre_tokenizer.h"
#include "megatron/tokenizers/hugging_face/special_tokens.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"
#include "megatron/tokenizers/lazy_parts.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {

/// encode() and decode() give the package's results for any text. The post-processor adds special
/// tokens.
class HuggingFaceTokenizer : public Tokenizer {
 public:
  /// Reads `path`, a tokenizer.json or a folder that holds one.
  /// `special_tokens` are added to those of the file, as transformers' add_tokens() adds them.
  explicit HuggingFaceTokenizer(const std::filesystem::path& path,
                                const std::vector<std::string>& special_tokens = {});
  /// Reads the content of a tokenizer.json. The special tokens are those of the other files in
  /// `folder`; "": there are none. `source` names the file in errors.
  HuggingFaceTokenizer(hugging_face::TokenizerJson&& json, const std::filesystem::path& folder,
                       const std::string& source);
  /// Makes encode() the same as encode_fragment().
  void leave_out_special_tokens() { post_processor_.leave_out_ids(); }

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::vector<std::int32_t> encode_fragment(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return id_limit_; }
  std::int32_t eod() const override { return special_.eos; }
  std::int32_t pad() const override { return special_.pad; }
  std::int32_t bos() const override { return special_.bos; }
  std::int32_t find(std::string_view token) const override;
  bool is_special(std::int32_t id) const override { return added_tokens_.is_special(id); }
  std::int32_t unk() const override { return unk_; }
  std::string token(std::int32_t id) const override;
  std::string token_bytes(std::int32_t id) const override;
  bool awaits_more(std::int32_t id) const override;
  std::string_view name() const override { return "HuggingFaceTokenizer"; }

 protected:
  const hugging_face::SpecialTokenIds& special_tokens() const { return special_; }
  /// Replaces the post-processor by one that adds bos before a text. Throws a UserError if there is
  /// none; `what` needs it.
  void begin_with_bos(const std::string& what);

 private:
  std::size_t count_start(std::string_view text) const;
  void encode_plain(std::string_view text, bool starts_document,
                    std::vector<std::int32_t>& ids) const;
  void encode_words(std::string_view text, std::size_t start, std::vector<std::int32_t>& ids) const;
  void encode_byte_level(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::unique_ptr<hugging_face::Normalizer> normalizer_;
  std::unique_ptr<hugging_face::PreTokenizer> pre_tokenizer_;
  std::unique_ptr<hugging_face::Model> model_;
  hugging_face::AddedTokens added_tokens_;
  hugging_face::PostProcessor post_processor_;
  hugging_face::Decoder decoder_;
  hugging_face::SpecialTokenIds special_;
  std::int32_t id_limit_ = 0, unk_ = -1;
  bool decodes_byte_level_ = false;      ///< the decoder reads the alphabet of byte_level.h
  bool decodes_bytes_together_ = false;  ///< the decoder reads runs of tokens such as <0x41>
  const WordSplitter* byte_level_words_ = nullptr;  ///< of pre_tokenizer_, if it has them
  bool has_independent_parts_ = false;              ///< of words of bytes
  LazyParts parts_{IndependentParts::Boundaries::beyond_ascii};
  std::uint64_t cache_owner_ = WordCache::new_owner();
};

}  // namespace megatron
