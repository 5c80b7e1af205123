// Text to token ids and back. make_tokenizer opens the kinds that Megatron-LM's --tokenizer-type
// names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/settings.h"

namespace megatron {

/// What decode does with tokens that mark structure rather than text (eod, bos, chat roles).
enum class SpecialTokens { keep, skip };

/// Immutable: every member may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of one document, as Megatron's preprocessing would write them (without the
  /// end-of-document token). Invalid UTF-8 is read as Python's errors='replace' reads it, unless
  /// accepts_invalid_utf8().
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  /// The text of `ids`; ids without a token (a model's padded vocabulary) give nothing. Valid
  /// UTF-8, but for ByteTokenizer.
  virtual std::string decode(std::span<const std::int32_t> ids,
                             SpecialTokens special = SpecialTokens::skip) const = 0;

  /// Largest id + 1: the rows that an embedding needs.
  virtual std::int64_t vocab_size() const = 0;

  /// The end-of-document id, which is also the end-of-sequence id; −1 when the tokenizer has none.
  virtual std::int32_t eod() const = 0;
  virtual std::int32_t pad() const { return -1; }  ///< −1 when there is none
  virtual std::int32_t bos() const { return -1; }  ///< −1 when there is none
  virtual bool is_special(std::int32_t id) const { return id == eod(); }

  /// Whether encode takes any bytes as they are, valid UTF-8 or not.
  virtual bool accepts_invalid_utf8() const { return false; }

  /// The --tokenizer-type: "NullTokenizer", "HuggingFaceTokenizer" …
  virtual std::string_view name() const = 0;
};

/// Whether the settings name a tokenizer at all.
bool has_tokenizer(const TokenizerConfig& config);

/// The --tokenizer-type; without one, recognised from the files. UserError when they are of no
/// known kind.
std::string tokenizer_type(const TokenizerConfig& config);

/// Opens the tokenizer of `config`; without a tokenizer_type the kind is recognised from the files.
/// UserErrors name flag, file and field.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config);

}  // namespace megatron
