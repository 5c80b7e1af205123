// A tokenizer for benchmarks and tests. Its text is the decimal ids, separated by spaces.
#pragma once

#include <optional>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Ids are 0 to N−1, where N is `vocab_size`.
class NullTokenizer : public Tokenizer {
 public:
  struct Ids {
    std::optional<std::int64_t> eod = {};  ///< none: N−1
    std::int64_t pad = -1;                 ///< −1: there is none
  };
  /// Throws a UserError when `vocab_size` is less than 1 or an id is not less than it.
  NullTokenizer(std::int64_t vocab_size, const Ids& ids);
  /// Throws a UserError for a word that is not an id.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int32_t eod() const override { return eod_; }
  std::int32_t pad() const override { return pad_; }
  std::string token(std::int32_t id) const override { return std::to_string(id); }
  std::string_view name() const override { return "NullTokenizer"; }

 private:
  std::int64_t vocab_size_;
  std::int32_t eod_, pad_;
};

}  // namespace megatron
