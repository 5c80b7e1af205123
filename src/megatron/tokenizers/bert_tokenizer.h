// BERT's tokenizer, read from vocab.txt (Devlin et al., 2018).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// encode() gives the ids of transformers' BertTokenizer without [CLS] and [SEP], which data sets
/// add. As in Megatron, [BOS] and [EOS] follow the vocabulary if it lacks them; eod is [EOS].
class BertTokenizer : public Tokenizer {
 public:
  /// [BOS] and [EOS] are not added where there would be more than `max_ids` ids.
  BertTokenizer(const std::filesystem::path& vocab_file, bool lowercase,
                std::int64_t max_ids = std::numeric_limits<std::int64_t>::max());
  std::vector<std::int32_t> encode(std::string_view text) const override {
    return tokenizer_.encode(text);
  }
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override {
    return tokenizer_.decode(ids, special);
  }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int32_t eod() const override { return eos_; }
  std::int32_t bos() const override { return bos_; }
  std::int32_t pad() const override { return tokenizer_.find("[PAD]"); }
  bool is_special(std::int32_t id) const override {
    return id == eos_ || id == bos_ || tokenizer_.is_special(id);
  }
  std::int32_t unk() const override { return tokenizer_.unk(); }
  std::int32_t find(std::string_view token) const override;
  std::string token(std::int32_t id) const override {
    return id == bos_ ? "[BOS]" : id == eos_ ? "[EOS]" : tokenizer_.token(id);
  }
  std::string token_bytes(std::int32_t id) const override { return tokenizer_.token_bytes(id); }
  std::string_view name() const override { return name_; }

 private:
  HuggingFaceTokenizer tokenizer_;
  std::string_view name_;
  std::int32_t bos_, eos_;
  std::int64_t vocab_size_;
};

}  // namespace megatron
