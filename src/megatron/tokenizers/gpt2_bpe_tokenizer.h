// GPT-2's byte-level BPE tokenizer, read from vocab.json and merges.txt.
#pragma once

#include <filesystem>

#include "megatron/tokenizers/bpe.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/word_cache.h"
#include "megatron/tokenizers/word_splitter.h"

namespace megatron {

/// eod is <|endoftext|>. The text "<|endoftext|>" in a document is that token, as in transformers'
/// GPT2Tokenizer, which Megatron's GPT2BPETokenizer is since 0.18.
class Gpt2BpeTokenizer : public Tokenizer {
 public:
  Gpt2BpeTokenizer(const std::filesystem::path& vocab_file,
                   const std::filesystem::path& merge_file);
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return bpe_.vocabulary().id_limit(); }
  std::int32_t eod() const override { return eod_; }
  std::int32_t find(std::string_view token) const override { return bpe_.vocabulary().find(token); }
  std::string token(std::int32_t id) const override {
    return std::string(bpe_.vocabulary().token(id));
  }
  std::string token_bytes(std::int32_t id) const override;
  std::string_view name() const override { return "GPT2BPETokenizer"; }

 private:
  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids) const;

  Bpe bpe_;
  WordSplitter splitter_;
  std::int32_t eod_;
  std::uint64_t cache_owner_ = WordCache::new_owner();
};

}  // namespace megatron
