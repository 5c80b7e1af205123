// Byte-level BPE as the tiktoken package does it, for its own vocabularies, Mistral's tekken.json
// and Megatron's TikTokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "megatron/tokenizers/hugging_face/token_trie.h"
#include "megatron/tokenizers/lazy_parts.h"
#include "megatron/tokenizers/tiktoken/vocabulary_file.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/word_cache.h"
#include "megatron/tokenizers/word_splitter.h"

namespace megatron {

struct TokenizerConfig;

/// encode() gives the ids of tiktoken's encode_ordinary(); for Megatron's TikTokenizer, those of
/// encode() with all special tokens allowed.
class TiktokenTokenizer : public Tokenizer {
 public:
  explicit TiktokenTokenizer(const TokenizerConfig& config);
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return id_limit_; }
  std::int32_t eod() const override { return eod_; }
  std::int32_t bos() const override { return bos_; }
  std::int32_t pad() const override { return pad_; }
  bool is_special(std::int32_t id) const override { return special_tokens_.contains(id); }
  std::int32_t find(std::string_view token) const override;
  std::string token(std::int32_t id) const override;
  std::string_view name() const override { return "TikTokenizer"; }

 private:
  TiktokenTokenizer(tiktoken::VocabularyFile file, const std::string& source);
  hugging_face::TokenTrie::Match next_special_token(std::string_view text, std::size_t at) const;
  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_word(WordCache& cache, std::string_view word, std::vector<std::int32_t>& ids) const;
  std::int32_t id_of(std::string_view special_token) const;

  BytePairRanks ranks_;
  LazyParts parts_{IndependentParts::Boundaries::beyond_ascii};
  WordSplitter splitter_;
  std::unordered_map<std::int32_t, std::string> special_tokens_;
  hugging_face::TokenTrie encoded_special_tokens_;
  bool decodes_between_special_tokens_;
  std::int32_t id_limit_ = 0, eod_ = -1, bos_ = -1, pad_ = -1;
  std::uint64_t cache_owner_;
};

}  // namespace megatron
