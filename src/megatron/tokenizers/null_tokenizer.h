// For benchmarks and tests: text is the ids themselves, in decimal, separated by spaces.
#pragma once

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Ids 0 … N−1, of which N−1 is eod.
class NullTokenizer : public Tokenizer {
 public:
  /// `vocab_size` ≥ 1.
  explicit NullTokenizer(std::int64_t vocab_size);
  /// A UserError for a word that is no id.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int32_t eod() const override { return static_cast<std::int32_t>(vocab_size_ - 1); }
  std::string_view name() const override { return "NullTokenizer"; }

 private:
  std::int64_t vocab_size_;
};

}  // namespace megatron
