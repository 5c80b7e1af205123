// A tokenizer for benchmarks and tests. Its text is the decimal ids, separated by spaces.
#pragma once

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Ids are 0 to N−1, where N is `vocab_size`; N−1 is eod.
class NullTokenizer : public Tokenizer {
 public:
  /// Throws a UserError when `vocab_size` is less than 1.
  explicit NullTokenizer(std::int64_t vocab_size);
  /// Throws a UserError for a word that is not an id.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int32_t eod() const override { return static_cast<std::int32_t>(vocab_size_ - 1); }
  std::string token(std::int32_t id) const override { return std::to_string(id); }
  std::string_view name() const override { return "NullTokenizer"; }

 private:
  std::int64_t vocab_size_;
};

}  // namespace megatron
